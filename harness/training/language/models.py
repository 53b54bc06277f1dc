"""Load a model and its tokenizer, and put an adapter on it."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.local_models.weights import SMOLLM2, find_weights
from harness.training.language.encoding import Encoder, base_name
from harness.training.language.memory import raise_if_exhausted
from harness.training.language.plan import Adapter, Base, Data
from pytest_ssr.errors import MissingExtraError, SettingsError

_PACKAGES = {"torch": "PyTorch", "transformers": "transformers", "trl": "TRL", "peft": "PEFT"}


def require_packages() -> None:
    """Raise MissingExtraError unless the packages of the extra `train` are installed.

    It also turns off their progress bars, their warnings about later releases, and their reports of usage to the hub
    unless the user has set the variable.
    """
    for module, name in _PACKAGES.items():
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(name, "train")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers|trl")
    import datasets
    from transformers.utils import logging

    datasets.disable_progress_bars()
    logging.disable_progress_bar()
    logging.set_verbosity_error()


@contextmanager
def _loading(model: str) -> Iterator[None]:
    """Turn errors into SettingsError or TrainingError: a file of a model can be damaged in any way."""
    try:
        yield
    except (SettingsError, MissingExtraError):
        raise
    except Exception as error:
        raise_if_exhausted(error)
        if isinstance(error, OSError | ValueError):
            damage, text = "", str(error)
        else:
            damage, text = "; its files may be damaged", f"{type(error).__name__}: {error}"
        raise SettingsError(
            f"--model {model} cannot be loaded{damage}: {' '.join(text.split())[:300]}", option="model"
        ) from None


def _require_model(model: str) -> None:
    """Raise SettingsError for a folder without a model, and for an adapter.

    transformers would load an adapter's base model, on which PEFT then puts a new adapter instead of that one.
    """
    from transformers.utils.peft_utils import find_adapter_config_file

    if find_adapter_config_file(model) is not None:
        raise SettingsError(
            f"--model {model} is an adapter; merge it with its base model first, as docs/training.md shows, and train "
            "on the merged model",
            option="model",
        )
    if Path(model).is_dir() and not (Path(model) / "config.json").is_file():
        raise SettingsError(f"--model {model} is not a model: it has no config.json", option="model")


def _location(model: str) -> str:
    """Return the folder into which a model of a package or a GGUF file is converted; other names as they are.

    Raises SettingsError or MissingExtraError if it cannot be converted.
    """
    is_converted = model == SMOLLM2 or Path(model).is_file()
    return str(find_weights(model, option="model").folder) if is_converted else model


def load_tokenizer(base: Base) -> Any:
    """Return the tokenizer; raises SettingsError if it cannot be loaded or has no chat template."""
    from transformers import AutoTokenizer

    with _loading(base.model):
        location = _location(base.model)
        _require_model(location)
        tokenizer = AutoTokenizer.from_pretrained(location)
    if base.chat_template is not None:
        try:
            tokenizer.chat_template = base.chat_template.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise SettingsError(f"--chat-template {base.chat_template}: {error}", option="chat-template") from None
    if not tokenizer.chat_template:
        raise SettingsError(
            f"the tokenizer of {base.model} has no chat template; give one with --chat-template FILE, or train an "
            "instruction-tuned model",
            option="model",
        )
    if tokenizer.eos_token is None:
        raise SettingsError(f"the tokenizer of {base.model} has no token that ends a reply (EOS)", option="model")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(base: Base, adapter: Adapter) -> Any:
    """Return the model; raises SettingsError if it cannot be loaded as the settings want."""
    from transformers import AutoModelForCausalLM

    options: dict[str, Any] = {"dtype": dtype_of(base, adapter)}
    if base.bits:
        options["quantization_config"] = _quantization(base)
        options["device_map"] = {"": int(os.environ.get("LOCAL_RANK", "0"))}
    with _loading(base.model):
        location = _location(base.model)
        _require_model(location)
        return AutoModelForCausalLM.from_pretrained(location, **options)


def dtype_of(base: Base, adapter: Adapter) -> Any:
    """Return the type of the weights.

    By default, those that are trained are float32: bfloat16 has 8 significant bits, so most updates at a usual learning
    rate would be rounded away. For adapters see `widen`.
    """
    import torch

    if base.dtype == "auto":
        is_fixed = torch.cuda.is_available() and adapter.kind != "none"
        return torch.bfloat16 if is_fixed else torch.float32
    return getattr(torch, base.dtype)


def widen(model: Any) -> None:
    """Turn the weights that are trained into float32. PEFT does that, but TRL reverses it above quantised weights."""
    for weights in model.parameters():
        if weights.requires_grad:
            weights.data = weights.data.float()


def _quantization(base: Base) -> Any:
    """Return the configuration of bitsandbytes; raises SettingsError if it cannot work on this machine."""
    import torch

    if not torch.cuda.is_available():
        raise SettingsError(f"--bits {base.bits} needs a GPU; leave it out on a CPU", option="bits")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise SettingsError(f"--bits {base.bits} needs bitsandbytes; run: pip install bitsandbytes", option="bits")
    from transformers import BitsAndBytesConfig

    if base.bits == 8:
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def adapter_of(base: Base, adapter: Adapter) -> Any:
    """Return the configuration of PEFT; None if all weights are trained."""
    if adapter.kind == "none":
        if base.bits:
            raise SettingsError("quantised weights cannot be trained; use --adapter lora or dora", option="bits")
        return None
    from peft import LoraConfig

    return LoraConfig(
        task_type="CAUSAL_LM",
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=list(adapter.targets) or "all-linear",
        use_dora=adapter.kind == "dora",
    )


def require_targets(model: Any, adapter: Adapter) -> None:
    """Raise SettingsError for a target that no module of the model has."""
    names = [name for name, _ in model.named_modules()]
    for target in adapter.targets:
        if not any(name == target or name.endswith(f".{target}") for name in names):
            raise SettingsError(f"--lora-target {target!r}: no module of the model has that name", option="lora-target")


def context_of(model: Any) -> int:
    """Return the number of tokens of the model's context; 0 if its configuration has none."""
    config = model.config.get_text_config()
    return int(getattr(config, "max_position_embeddings", 0) or getattr(config, "n_positions", 0) or 0)


def encoder_of(model: Any, tokenizer: Any, base: Base, data: Data) -> Encoder:
    """Return the encoder of rows for a model."""
    context = context_of(model)
    limits = [limit for limit in (data.max_length, context) if limit]
    names = {base_name(base.model), base_name(str(Path(base.model).name)), *map(base_name, data.tokens_of)}
    return Encoder(
        tokenizer,
        data,
        frozenset(names),
        limit=min(limits, default=2**31),
        # A model may have more embeddings than tokens, so that their number is a round one.
        vocabulary=min(len(tokenizer), int(model.get_input_embeddings().num_embeddings)),
    )
