"""A model is found by its name, and a GGUF file is converted once."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tiny_gguf import write_gguf
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.local_models import weights as module
from harness.local_models.gguf_file import Fault, GgufError, convert
from harness.local_models.torch_model import TorchModel
from harness.local_models.weights import availability, find_weights
from pytest_ssr.errors import MissingExtraError, SettingsError

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

TEXT = "def add(a, b):\n    return a + 12\n"


@pytest.fixture(scope="session")
def gguf(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(llama, path)
    return path


def logits(folder: Path) -> torch.Tensor:
    ids = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt").input_ids
    with torch.inference_mode():
        return AutoModelForCausalLM.from_pretrained(folder)(ids).logits


def test_a_converted_file_says_what_the_model_says(llama, gguf, tmp_path):
    found = find_weights(str(gguf), tmp_path)
    assert found.folder.parent == tmp_path
    assert torch.allclose(logits(found.folder), logits(llama), atol=1e-4)


def test_a_file_is_converted_once_also_by_several_at_a_time(gguf, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(module, "convert", lambda path, folder: (calls.append(path), convert(path, folder)))
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(find_weights(str(gguf), tmp_path))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len(set(results)) == 1
    assert availability(tmp_path).is_converted


def test_a_conversion_that_fails_leaves_nothing(gguf, tmp_path):
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(gguf.read_bytes()[:5000])
    with pytest.raises(GgufError) as caught:
        find_weights(str(damaged), tmp_path / "cache")
    assert caught.value.fault is Fault.UNREADABLE
    assert [p.suffix for p in (tmp_path / "cache").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"architecture": "qwen2"}, Fault.ARCHITECTURE),
        ({"extra": "rope_freqs.weight"}, Fault.TENSOR),
        ({"without": "token_embd.weight"}, Fault.SHAPE),
        ({"without": "blk.1.ffn_up.weight"}, Fault.SHAPE),
        ({"blocks": 1}, Fault.FIELD),
        ({"blocks": 3}, Fault.FIELD),
        ({"heads": 0}, Fault.FIELD),
        ({"longest": 0}, Fault.FIELD),
        ({"epsilon": float("nan")}, Fault.FIELD),
    ],
)
def test_other_models_are_refused_by_name(llama, tmp_path, options, fault):
    path = tmp_path / "other.gguf"
    write_gguf(llama, path, **options)
    with pytest.raises(GgufError) as caught:
        convert(path, tmp_path / "model")
    assert caught.value.fault is fault


def test_an_array_of_absurd_length_is_not_read_to_its_end(gguf, tmp_path):
    data = bytearray(gguf.read_bytes())
    # After the name and the type of the field: the type of its items, here bytes, and their number.
    place = data.index(b"tokenizer.ggml.token_type") + len("tokenizer.ggml.token_type") + 4
    data[place : place + 12] = (0).to_bytes(4, "little") + (2**62).to_bytes(8, "little")
    path = tmp_path / "absurd.gguf"
    path.write_bytes(data)
    with pytest.raises(GgufError) as caught:
        convert(path, tmp_path / "model")
    assert caught.value.fault is Fault.UNREADABLE


def test_a_text_that_is_not_utf_8_is_no_field(gguf, tmp_path):
    path = tmp_path / "bytes.gguf"
    path.write_bytes(gguf.read_bytes().replace(b"llama", b"\xff\xfe\xff\xfe\xff", 1))
    with pytest.raises(GgufError) as caught:
        convert(path, tmp_path / "model")
    assert caught.value.fault is Fault.FIELD


def test_a_folder_that_cannot_be_written_is_the_users_mistake(gguf, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError) as caught:
        find_weights(str(gguf), tmp_path / "file", option="solver")
    assert caught.value.option == "solver"

    def fail(*_: object, **__: object) -> None:
        raise SafetensorError("no space is left")

    monkeypatch.setattr("safetensors.torch.save_file", fail)
    with pytest.raises(GgufError) as full:
        find_weights(str(gguf), tmp_path / "cache")
    assert full.value.fault is Fault.UNWRITTEN
    assert [p.suffix for p in (tmp_path / "cache").iterdir()] == [".lock"]


def test_what_a_killed_conversion_has_left_is_replaced(gguf, tmp_path):
    found = find_weights(str(gguf), tmp_path / "whole")
    left = tmp_path / "cache" / f"{found.folder.name}.making"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    assert logits(find_weights(str(gguf), tmp_path / "cache").folder).isfinite().all()
    assert not left.exists()


def test_a_name_that_no_file_can_have_is_no_model():
    with pytest.raises(SettingsError):
        find_weights("m" * 5000)


def test_an_adapter_is_refused_before_its_model_is_downloaded(llama, tmp_path):
    copy = Path(shutil.copytree(llama, tmp_path / "copy"))
    (copy / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "some/model"}))
    with pytest.raises(SettingsError) as caught:
        find_weights(str(copy))
    assert caught.value.option == "lm"


def test_the_chat_template_is_part_of_the_key_and_what_is_no_file_is_not(llama, tmp_path):
    copy = Path(shutil.copytree(llama, tmp_path / "copy"))
    (copy / "more.json").mkdir()
    key = find_weights(str(copy)).key
    (copy / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert find_weights(str(copy)).key != key


def test_a_folder_is_named_by_the_hash_of_its_files(llama, tmp_path):
    one = find_weights(str(llama))
    assert one.folder == llama
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in llama.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert find_weights(str(copy)).key == one.key
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-5}))
    assert find_weights(str(copy)).key != one.key


def test_what_is_no_model_is_named(tmp_path, monkeypatch):
    for name in (str(tmp_path), str(tmp_path / "nothing"), "smollm3"):
        with pytest.raises(SettingsError) as caught:
            find_weights(name)
        assert caught.value.option == "lm"
    monkeypatch.setattr(module, "packaged_file", lambda: None)
    with pytest.raises(SettingsError):
        find_weights("smollm2")
    assert not availability(tmp_path).works
    monkeypatch.setattr(module, "_NEEDED", ("torch", "no_such_package"))
    with pytest.raises(MissingExtraError):
        find_weights("smollm2")
    assert availability(tmp_path).missing == ("no_such_package",)


def make_adapter(base: str, folder: Path, seed: int) -> Path:
    """Write an adapter with random weights, and return its folder."""
    model = AutoModelForCausalLM.from_pretrained(find_weights(base).folder)
    torch.manual_seed(seed)
    adapted = get_peft_model(
        model, LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", init_lora_weights=False)
    )
    adapted.save_pretrained(folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": base}))
    return folder


def of_model(folder: Path) -> torch.Tensor:
    model = TorchModel(find_weights(str(folder)))
    with torch.inference_mode():
        return model.model(torch.tensor([model.encode(TEXT)[0]])).logits


def test_an_adapter_is_merged_with_its_model(llama, tmp_path):
    one, two = make_adapter(str(llama), tmp_path / "one", 1), make_adapter(str(llama), tmp_path / "two", 2)
    ids = torch.tensor([TorchModel(find_weights(str(llama))).encode(TEXT)[0]])
    expected = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(llama), one)
    with torch.inference_mode():
        assert torch.allclose(of_model(one), expected(ids).logits, atol=1e-4)
    assert not torch.allclose(of_model(one), of_model(llama), atol=1e-2)
    keys = {find_weights(str(folder)).key for folder in (llama, one, two)}
    assert len(keys) == 3
    moved = Path(shutil.copytree(llama, tmp_path / "moved"))
    shutil.copytree(one, tmp_path / "copy")
    config = json.loads((one / "adapter_config.json").read_text()) | {"base_model_name_or_path": str(moved)}
    (tmp_path / "copy" / "adapter_config.json").write_text(json.dumps(config))
    assert find_weights(str(tmp_path / "copy")).key == find_weights(str(one)).key
    (tmp_path / "copy" / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 1}))
    assert find_weights(str(tmp_path / "copy")).key != find_weights(str(one)).key


def test_an_adapter_of_an_adapter_has_both(llama, tmp_path):
    one = make_adapter(str(llama), tmp_path / "one", 1)
    config = json.loads((make_adapter(str(llama), tmp_path / "two", 2) / "adapter_config.json").read_text())
    two = tmp_path / "two"
    alone = of_model(two)
    (two / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": str(one)}))
    assert find_weights(str(two)).adapters == (one, two)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(llama), one).merge_and_unload()
    both = PeftModel.from_pretrained(model, two)
    ids = torch.tensor([TorchModel(find_weights(str(llama))).encode(TEXT)[0]])
    with torch.inference_mode():
        assert torch.allclose(of_model(two), both(ids).logits, atol=1e-4)
    assert not torch.allclose(of_model(two), alone, atol=1e-2)


@pytest.mark.parametrize("base", ["missing/model", "", None, "itself"])
def test_an_adapter_without_a_model_here_is_refused(base, llama, tmp_path):
    folder = make_adapter(str(llama), tmp_path / "adapter", 1)
    config = json.loads((folder / "adapter_config.json").read_text())
    base = str(folder) if base == "itself" else base
    (folder / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": base}))
    with pytest.raises(SettingsError):
        find_weights(str(folder), tmp_path / "cache")


def test_an_adapter_in_a_pickle_is_refused(llama, tmp_path):
    folder = make_adapter(str(llama), tmp_path / "adapter", 1)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(SettingsError):
        find_weights(str(folder))


def test_an_adapter_finds_a_model_that_was_converted_elsewhere(llama, gguf, tmp_path):
    cache = tmp_path / "cache"
    converted = find_weights(str(gguf), cache).folder
    folder = make_adapter(str(llama), tmp_path / "adapter", 1)
    config = json.loads((folder / "adapter_config.json").read_text())
    elsewhere = f"/elsewhere/pytest-ssr/models/{converted.name}"
    (folder / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": elsewhere}))
    assert find_weights(str(folder), cache).folder == converted


def test_an_adapter_of_another_model_is_refused(llama, tmp_path):
    folder = make_adapter(str(llama), tmp_path / "adapter", 1)
    weights = load_file(folder / "adapter_model.safetensors")
    save_file({f"other.{name}": value for name, value in weights.items()}, folder / "adapter_model.safetensors")
    with pytest.raises(SettingsError):
        TorchModel(find_weights(str(folder)))
