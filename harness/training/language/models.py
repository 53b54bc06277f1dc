"""Load a model and its tokenizer, and put an adapter on it."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.local_models.torch_model import merged
from harness.local_models.weights import SMOLLM2, Weights, find_weights, is_adapter
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
    # It looks for the model's configuration in the folder of an adapter that is trained on.
    warnings.filterwarnings("ignore", category=UserWarning, module="peft.utils.save_and_load")
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


def _find(model: str) -> Weights | None:
    """Return the model of a package, a GGUF file or an adapter; None for other names, which transformers knows.

    Raises SettingsError or MissingExtraError if it cannot be used.
    """
    path = Path(model)
    if model == SMOLLM2 or path.is_file() or is_adapter(path):
        return find_weights(model, option="model")
    if path.is_dir() and not (path / "config.json").is_file():
        raise SettingsError(f"--model {model} is not a model: it has no config.json", option="model")
    return None


def load_tokenizer(base: Base) -> Any:
    """Return the tokenizer; raises SettingsError if it cannot be loaded or has no chat template."""
    from transformers import AutoTokenizer

    with _loading(base.model):
        found = _find(base.model)
        tokenizer = AutoTokenizer.from_pretrained(found.tokenizer if found is not None else base.model)
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
        found = _find(base.model)
        if found is not None and found.adapters and base.bits:
            raise SettingsError(
                f"--model {base.model} is an adapter, which cannot be merged with quantised weights; leave --bits out",
                option="bits",
            )
        model = AutoModelForCausalLM.from_pretrained(found.folder if found is not None else base.model, **options)
        if found is not None and found.adapters:
            model = merged(model, found)
            # What is trained now is written as an adapter of this.
            model.name_or_path = str(found.adapters[-1].resolve())
        return model


def write_merged(base: Base, adapter: Adapter, trained: Path, folder: Path) -> None:
    """Write a model with a trained adapter merged into its weights, and the tokenizer. trained: the adapter's folder.

    The folder is complete or not there. Raises SettingsError for quantised weights.
    """
    if base.bits:
        raise SettingsError(
            "an adapter cannot be merged with quantised weights: --merged needs no --bits", option="bits"
        )
    from peft import PeftModel
    from transformers import AutoTokenizer

    model = PeftModel.from_pretrained(load_model(base, adapter), trained).merge_and_unload()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="merging-") as made:
        model.save_pretrained(Path(made, "model"))
        AutoTokenizer.from_pretrained(trained).save_pretrained(Path(made, "model"))
        Path(made, "model").rename(folder)


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


def adapter_of(model: Any, base: Base, adapter: Adapter) -> Any:
    """Return the configuration of PEFT; None if all weights are trained."""
    if adapter.kind == "none":
        if base.bits:
            raise SettingsError("quantised weights cannot be trained; use --adapter lora or dora", option="bits")
        return None
    from peft import LoraConfig

    targets, among = list(adapter.targets) or "all-linear", None
    if adapter.layers:
        count = int(model.config.get_text_config().num_hidden_layers)
        among = list(range(max(0, count - adapter.layers), count))
        targets = list(adapter.targets) or _linear_modules(model)
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=targets,
        layers_to_transform=among,
        use_dora=adapter.kind == "dora",
    )


def _linear_modules(model: Any) -> list[str]:
    """Return the names of the linear modules of a layer; PEFT knows "all-linear" only if it adapts all layers."""
    from torch.nn import Linear

    last = model.get_output_embeddings()
    linear = (name for name, module in model.named_modules() if isinstance(module, Linear) and module is not last)
    return sorted({name.rpartition(".")[2] for name in linear})


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
