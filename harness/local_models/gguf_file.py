"""Turn a GGUF file of a Llama model into a folder that transformers, PEFT and TRL load.

transformers reads such a file itself, but slowly, and refuses to save what it has read. The tokenizer is read by it;
the weights are dequantised here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
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
_EMBEDDINGS = "model.embed_tokens.weight"
_ARCHITECTURE = "llama"


class Fault(StrEnum):
    """Why a GGUF file cannot be converted."""

    UNREADABLE = "unreadable"
    ARCHITECTURE = "architecture"
    TENSOR = "tensor"
    SHAPE = "shape"
    """A tensor is absent, or does not have the shape that the fields give it."""
    FIELD = "field"
    UNWRITTEN = "unwritten"


class GgufError(SettingsError):
    """A GGUF file that cannot be converted."""

    def __init__(self, path: Path, fault: Fault, detail: str) -> None:
        text = {
            Fault.UNREADABLE: f"cannot be read: {detail}",
            Fault.ARCHITECTURE: f"holds a model of the architecture {detail!r}, and only {_ARCHITECTURE!r} is "
            "converted; give a folder in the format of transformers",
            Fault.TENSOR: f"has the tensor {detail!r}, which a plain Llama model does not have",
            Fault.SHAPE: f"has no tensor {detail!r} of the shape that its fields give",
            Fault.UNWRITTEN: f"cannot be converted into {detail}",
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

    class Reader(gguf.GGUFReader):  # type: ignore[misc]
        """Refuses what lies after the end of the file, which the reader of `gguf` takes for empty."""

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            found = super()._get(offset, dtype, count, override_order)
            # Otherwise an array with a length of billions is read for hours.
            if len(found) < count:
                raise ValueError("the file ends too early")
            return found

    try:
        reader = Reader(path)
    except OSError:
        raise
    # The reader maps the file and trusts what it says: whatever is wrong in it ends in an error of any kind.
    except Exception as error:
        raise GgufError(path, Fault.UNREADABLE, f"{type(error).__name__}: {error}") from None
    fields = _Fields(path, reader)
    if fields.text("general.architecture") != _ARCHITECTURE:
        raise GgufError(path, Fault.ARCHITECTURE, fields.text("general.architecture"))
    heads = fields.count("llama.attention.head_count")
    key_heads = fields.count("llama.attention.head_count_kv", heads)
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
    layers = fields.count("llama.block_count")
    if layers != sum(name.endswith(".input_layernorm.weight") for name in tensors):
        raise GgufError(path, Fault.FIELD, "llama.block_count")
    embeddings = tensors.get(_EMBEDDINGS)
    if embeddings is None:
        raise GgufError(path, Fault.SHAPE, _EMBEDDINGS)
    config = LlamaConfig(
        vocab_size=len(embeddings),
        hidden_size=fields.count("llama.embedding_length"),
        intermediate_size=fields.count("llama.feed_forward_length"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        rms_norm_eps=fields.number("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": fields.number("llama.rope.freq_base", 10_000.0)},
        max_position_embeddings=fields.count("llama.context_length"),
        tie_word_embeddings="lm_head.weight" not in tensors,
        bos_token_id=int(fields.number("tokenizer.ggml.bos_token_id", 1)),
        eos_token_id=int(fields.number("tokenizer.ggml.eos_token_id", 2)),
        architectures=["LlamaForCausalLM"],
        dtype="float32",
    )
    _require_shapes(path, config, tensors)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, trust_remote_code=False)
    except Exception as error:
        raise GgufError(path, Fault.UNREADABLE, f"its tokenizer: {type(error).__name__}: {error}") from None
    if tokenizer.vocab_size > len(embeddings):
        raise GgufError(path, Fault.SHAPE, _EMBEDDINGS)
    special = json.dumps({"bos_token_id": config.bos_token_id, "eos_token_id": config.eos_token_id})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save_pretrained(folder)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        config.save_pretrained(folder)
        (folder / "model.safetensors").chmod(0o644)
        (folder / "generation_config.json").write_text(special, encoding="utf-8")
    # Each of the libraries has its own error for a full disk.
    except Exception as error:
        raise GgufError(path, Fault.UNWRITTEN, f"{folder.parent}: {error}") from None


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


def _require_shapes(path: Path, config: Any, tensors: Mapping[str, Any]) -> None:
    """Raise GgufError unless all tensors of a model are there: transformers would fill in random numbers."""
    import torch
    from transformers import LlamaForCausalLM

    with torch.device("meta"):
        try:
            model = LlamaForCausalLM(config)
        # Sizes that no tensor can have, or heads that do not divide them.
        except (RuntimeError, ValueError, TypeError, OverflowError) as error:
            raise GgufError(path, Fault.UNREADABLE, " ".join(str(error).split())) from None
    for name, parameter in model.named_parameters():
        if name not in tensors or tensors[name].shape != parameter.shape:
            raise GgufError(path, Fault.SHAPE, name)


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
        try:
            return self._fields[name].contents() if name in self._fields else None
        except UnicodeDecodeError:
            raise GgufError(self._path, Fault.FIELD, name) from None

    def text(self, name: str) -> str:
        value = self._value(name)
        if not isinstance(value, str):
            raise GgufError(self._path, Fault.FIELD, name)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise GgufError(self._path, Fault.FIELD, name)
        return value

    def count(self, name: str, default: int | None = None) -> int:
        value = int(self.number(name, default))
        if value < 1:
            raise GgufError(self._path, Fault.FIELD, name)
        return value
