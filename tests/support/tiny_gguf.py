"""A tiny Llama of random weights, in a folder of transformers and in a GGUF file."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
HEADS, KEY_HEADS, WIDTH, LAYERS, LONGEST = 4, 2, 32, 2, 1024
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def make_llama(folder: Path) -> Any:
    """Write the model and its tokenizer into a folder, and return the model."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    bpe = ByteLevelBPETokenizer()
    bpe.train([os.__file__, tempfile.__file__], vocab_size=1024, special_tokens=_SPECIAL, show_progress=False)
    bpe.save(str(folder / "tokenizer.json"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), bos_token="<|im_start|>", eos_token="<|im_end|>"
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS, max_position_embeddings=LONGEST,
        tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, initializer_range=0.3,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    return model


def write_gguf(
    folder: Path,
    path: Path,
    *,
    architecture: str = "llama",
    extra: str = "",
    without: str = "",
    longest: int = LONGEST,
    blocks: int = LAYERS,
    heads: int = HEADS,
    epsilon: float = 1e-6,
) -> None:
    """Write the model of a folder as llama.cpp stores it. extra, without: the name of one more, or one less, tensor.

    The other arguments are what the fields say, which need not be true.
    """
    import gguf
    import numpy as np
    from safetensors.torch import load_file

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(longest)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(blocks)
    writer.add_feed_forward_length(64)
    writer.add_head_count(heads)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(epsilon)
    writer.add_rope_freq_base(10_000.0)
    stored = json.loads((folder / "tokenizer.json").read_text())["model"]
    tokens = sorted(stored["vocab"], key=stored["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in _SPECIAL else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in stored["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, tensor in load_file(folder / "model.safetensors").items():
        weights = tensor.float().numpy()
        own_heads = {"q_proj": HEADS, "k_proj": KEY_HEADS}.get(name.split(".")[-2])
        if own_heads:
            # llama.cpp's own order: the halves of a head are interleaved.
            halves = weights.reshape(own_heads, 2, len(weights) // own_heads // 2, -1)
            weights = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weights.shape))
        if _name(name) != without:
            writer.add_tensor(_name(name), weights)
    if extra:
        writer.add_tensor(extra, np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _name(name: str) -> str:
    layer = name.removeprefix("model.layers.")
    if layer == name:
        return f"{_NAMES[name.removesuffix('.weight')]}.weight"
    number, _, part = layer.partition(".")
    return f"blk.{number}.{_NAMES[part.removesuffix('.weight')]}.weight"
