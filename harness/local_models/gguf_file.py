"""Turn a GGUF file of a Llama model into a folder that transformers, PEFT and TRL load.

transformers reads such a file itself, but slowly, and refuses to save what it has read. The tokenizer is read by it;
the weights are dequantised here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from pytest_ssr.errors import SettingsError

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OTHERS = {"token_embd.weight": "embed_tokens.weight", "output_norm.weight": "norm.weight"}
_HEAD = "output.weight"
_ARCHITECTURE = "llama"


class Fault(StrEnum):
    """Why a GGUF file cannot be converted."""

    UNREADABLE = "unreadable"
    ARCHITECTURE = "architecture"
    TENSOR = "tensor"
    FIELD = "field"


class GgufError(SettingsError):
    """A GGUF file that cannot be converted."""

    def __init__(self, path: Path, fault: Fault, detail: str) -> None:
        text = {
            Fault.UNREADABLE: f"cannot be read: {detail}",
            Fault.ARCHITECTURE: f"holds a model of the architecture {detail!r}, and only {_ARCHITECTURE!r} is "
            "converted; give a folder in the format of transformers",
            Fault.TENSOR: f"has the tensor {detail!r}, which a plain Llama model does not have",
            Fault.FIELD: f"has no field {detail!r}, or one that is not supported",
        }[fault]
        super().__init__(f"{path} {text}", option="lm")
        self.fault = fault


def convert(path: Path, folder: Path) -> None:
    """Write the model in a GGUF file into a folder, in float32.

    Raises GgufError if it is damaged or of another kind.
    """
    import gguf
    import torch
    from safetensors.torch import save_file
    from transformers import AutoTokenizer, LlamaConfig

    try:
        reader = gguf.GGUFReader(path)
    # The reader maps the file and trusts what it says: whatever is wrong in it ends in an error of any kind.
    except Exception as error:
        raise GgufError(path, Fault.UNREADABLE, f"{type(error).__name__}: {error}") from None
    fields = _Fields(path, reader)
    if fields.text("general.architecture") != _ARCHITECTURE:
        raise GgufError(path, Fault.ARCHITECTURE, fields.text("general.architecture"))
    heads = int(fields.number("llama.attention.head_count"))
    key_heads = int(fields.number("llama.attention.head_count_kv", heads))
    if fields.has("llama.rope.scaling.type") and fields.text("llama.rope.scaling.type") != "none":
        raise GgufError(path, Fault.FIELD, "llama.rope.scaling.type")
    tensors: dict[str, torch.Tensor] = {}
    for name, target in _names(path, [t.name for t in reader.tensors]):
        tensor = next(t for t in reader.tensors if t.name == name)
        try:
            weights = gguf.dequantize(tensor.data, tensor.tensor_type)
            if ".attn_q." in name or ".attn_k." in name:
                weights = _in_halves(weights, heads if ".attn_q." in name else key_heads)
        except (ValueError, NotImplementedError) as error:
            raise GgufError(path, Fault.UNREADABLE, f"{name}: {error}") from None
        tensors[target] = torch.from_numpy(weights.astype("float32", copy=True)).contiguous()
    config = LlamaConfig(
        vocab_size=len(tensors["model.embed_tokens.weight"]),
        hidden_size=int(fields.number("llama.embedding_length")),
        intermediate_size=int(fields.number("llama.feed_forward_length")),
        num_hidden_layers=int(fields.number("llama.block_count")),
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        rms_norm_eps=fields.number("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": fields.number("llama.rope.freq_base", 10_000.0)},
        max_position_embeddings=int(fields.number("llama.context_length")),
        tie_word_embeddings="lm_head.weight" not in tensors,
        bos_token_id=int(fields.number("tokenizer.ggml.bos_token_id", 1)),
        eos_token_id=int(fields.number("tokenizer.ggml.eos_token_id", 2)),
        architectures=["LlamaForCausalLM"],
        dtype="float32",
    )
    folder.mkdir(parents=True, exist_ok=True)
    try:
        AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(folder)
    except Exception as error:
        raise GgufError(path, Fault.UNREADABLE, f"its tokenizer: {type(error).__name__}: {error}") from None
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    (folder / "generation_config.json").write_text(
        json.dumps({"bos_token_id": config.bos_token_id, "eos_token_id": config.eos_token_id}), encoding="utf-8"
    )


def _names(path: Path, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the name of each tensor with that in transformers."""
    for name in names:
        block, _, part = name.removeprefix("blk.").partition(".")
        if name in _OTHERS:
            yield name, f"model.{_OTHERS[name]}"
        elif name == _HEAD:
            yield name, "lm_head.weight"
        elif name.startswith("blk.") and block.isdigit() and (layer := _LAYER.get(part.removesuffix(".weight"))):
            yield name, f"model.layers.{block}.{layer}.weight"
        else:
            raise GgufError(path, Fault.TENSOR, name)


def _in_halves(weights: Any, heads: int) -> Any:
    """Return the rows of queries or keys in the order of transformers.

    llama.cpp rotates neighbouring rows of a head together, transformers those of its two halves.
    """
    rows = len(weights)
    return weights.reshape(heads, rows // heads // 2, 2, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


class _Fields:
    """The fields of a GGUF file."""

    def __init__(self, path: Path, reader: Any) -> None:
        self._path, self._fields = path, reader.fields

    def has(self, name: str) -> bool:
        return name in self._fields

    def _value(self, name: str) -> object:
        return self._fields[name].contents() if name in self._fields else None

    def text(self, name: str) -> str:
        value = self._value(name)
        if not isinstance(value, str):
            raise GgufError(self._path, Fault.FIELD, name)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int | float):
            raise GgufError(self._path, Fault.FIELD, name)
        return value
