"""Scores of variants are those of reading each variant by itself."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.local_models import sampling, torch_model
from harness.local_models.sampling import Question, SamplingModel
from harness.local_models.scoring import Variant
from harness.local_models.torch_model import TorchModel
from harness.local_models.weights import find_weights
from pytest_ssr.errors import SettingsError

TEXT = "def total(items, start=0):\n    result = start\n    for item in items:\n        result += item\n    return result\n"
PIECES = ("items", "result", "", "x", "not item", "a +\n        b", "é", "0")


@pytest.fixture(scope="module")
def model(llama: Path) -> TorchModel:
    return TorchModel(find_weights(str(llama)))


def variants(count: int, seed: int) -> list[Variant]:
    rng, result = Random(seed), list[Variant]()
    for _ in range(count):
        start = rng.randrange(len(TEXT) + 1)
        end = min(len(TEXT), start + rng.randrange(15))
        piece = rng.choice(PIECES)
        result += [Variant(TEXT[:start] + piece + TEXT[end:], start, start + len(piece)), Variant(TEXT, start, end)]
    return result


def alone(model: TorchModel, variant: Variant) -> list[float]:
    """Return the log-probability of each token of a text that is read by itself."""
    ids, _ = model.encode(variant.text)
    with torch.inference_mode():
        logs = model.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return [0.0, *(float(logs[i - 1, ids[i]]) for i in range(1, len(ids)))]


@pytest.mark.parametrize("together", [20, 512])
def test_variants_that_are_read_together_have_the_scores_of_each_by_itself(model, monkeypatch, together):
    monkeypatch.setattr("harness.local_models.torch_model._MOST_TOGETHER", together)
    wanted = variants(40, seed=together)
    reader = model.open(TEXT)
    trunk = reader.tokens
    assert trunk == len(model.encode(TEXT)[0])
    for variant, scores in zip(wanted, reader.read(wanted, after=4), strict=True):
        branch, values = reader._branch(variant, 4), alone(model, variant)
        assert scores.changed == pytest.approx(values[branch.first : branch.end], abs=1e-3)
        assert scores.after == pytest.approx(values[branch.end : branch.last], abs=1e-3)
    assert trunk < reader.tokens < sum(len(model.encode(v.text)[0]) for v in wanted)


def test_a_glance_compares_the_first_token_of_a_variant_with_that_of_the_text(model):
    wanted = variants(40, seed=7)
    reader = model.open(TEXT)
    before, own = reader.tokens, alone(model, Variant(TEXT, 0, 0))
    for variant, glance in zip(wanted, reader.glance(wanted), strict=True):
        branch, values = reader._branch(variant, 1), alone(model, variant)
        expected = values[branch.start] - own[branch.start] if branch.ids and branch.start < len(own) else 0.0
        assert glance == pytest.approx(expected, abs=1e-3)
    assert reader.glance([Variant(TEXT, 3, 5)]) == [0.0]
    assert reader.tokens == before


def test_the_tokens_of_a_region_hold_its_text(model):
    old, new = Variant(TEXT, TEXT.index("start\n"), TEXT.index("start\n") + 5), None
    new = Variant(TEXT.replace("= start\n", "= items\n"), old.start, old.end)
    reader = model.open(TEXT)
    for variant in (old, new):
        branch, (_, own) = reader._branch(variant, 3), model.encode(variant.text)
        covered = variant.text[own[branch.first][0] : own[branch.end - 1][1]]
        assert variant.text[variant.start : variant.end] in covered
        assert branch.last - branch.end == 3


def test_a_text_longer_than_the_context_is_not_read(model):
    long = "x = 1\n" * 2000
    reader = model.open(long)
    assert reader.read([Variant(long, 0, 1)], after=1) == reader.glance([Variant(long, 0, 1)]) == [None]
    assert reader.tokens == 0
    grown = Variant(TEXT[:10] + long + TEXT[10:], 10, 10 + len(long))
    short = Variant(TEXT, 0, 3)
    scores = model.open(TEXT).read([grown, short], after=1)
    assert scores[0] is None
    assert scores[1] is not None


def test_a_damaged_model_is_one_clear_error(llama, tmp_path):
    for path in llama.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes()[: 100 if path.suffix == ".safetensors" else None])
    with pytest.raises(SettingsError) as caught:
        TorchModel(find_weights(str(tmp_path)))
    assert caught.value.option == "lm"


def copied(llama: Path, folder: Path, change: Callable[[dict[str, Any]], object], **config: object) -> Path:
    """Return a copy of the model with other weights and other fields of its configuration."""
    shutil.copytree(llama, folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **config}))
    return folder


def _shorten(tensors: dict[str, Any]) -> None:
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:100].clone()


@pytest.mark.parametrize(
    ("change", "config"),
    [
        (lambda tensors: tensors.pop("model.layers.0.self_attn.q_proj.weight"), {}),
        (lambda _: None, {"num_hidden_layers": 3}),
        (lambda tensors: tensors["model.norm.weight"].fill_(float("nan")), {}),
        (_shorten, {"vocab_size": 100}),
    ],
    ids=["no-tensor", "more-layers", "nan", "fewer-words"],
)
def test_a_model_that_would_give_other_numbers_each_time_or_none_is_refused(llama, tmp_path, change, config):
    folder = copied(llama, tmp_path / "model", change, **config)
    with pytest.raises(SettingsError):
        TorchModel(find_weights(str(folder)))


def test_code_in_a_folder_is_not_asked_about(llama, tmp_path, capsys):
    own = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    folder = copied(llama, tmp_path / "model", lambda _: None, model_type="own", auto_map=own)
    with pytest.raises(SettingsError):
        TorchModel(find_weights(str(folder)))
    assert "[y/N]" not in capsys.readouterr().out


@pytest.mark.parametrize("template", ["{{ messages", "{{ raise_exception('no') }}"])
def test_a_chat_template_that_does_not_work_is_refused(llama, tmp_path, template):
    folder = copied(llama, tmp_path / "model", lambda _: None)
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(SettingsError):
        SamplingModel(find_weights(str(folder)))


@pytest.mark.parametrize(("module", "name"), [(torch_model, "TorchModel"), (sampling, "SamplingModel")])
def test_attempts_in_parallel_load_a_model_once(llama, tmp_path, monkeypatch, module, name):
    folder = copied(llama, tmp_path / "model", lambda _: None)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    weights, kind, loaded, results = find_weights(str(folder)), getattr(module, name), [], []
    monkeypatch.setattr(module, name, lambda weights: loaded.append(weights) or kind(weights))
    opened = torch_model.open_model if module is torch_model else sampling._open_model
    threads = [threading.Thread(target=lambda: results.append(opened(weights))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 1
    assert len(results) == 3


def test_threads_write_at_the_same_time_what_each_writes_alone(llama, tmp_path):
    folder = copied(llama, tmp_path / "model", lambda _: None)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    model = SamplingModel(find_weights(str(folder)))
    questions = [Question([{"role": "user", "content": text}], "<<<", ">>>") for text in (TEXT, "def f(): return 1")]

    def write(question: Question) -> tuple[str, ...]:
        return model.sample(question, count=3, temperature=0.9, tokens=20, seed=1).replies

    alone = [write(question) for question in questions]
    meeting, arrived = threading.Barrier(2, timeout=30), threading.local()

    def meet(*_: object) -> None:
        if not hasattr(arrived, "once"):
            arrived.once = True
            meeting.wait()

    model.model.register_forward_pre_hook(meet)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(write, questions)) == alone


@pytest.mark.parametrize(
    ("settings", "locked"),
    [({"rope_type": "default"}, False), ({"rope_type": "dynamic", "factor": 2.0}, True)],
    ids=["default", "dynamic"],
)
def test_a_model_with_angles_that_change_is_used_by_one_thread_at_a_time(llama, tmp_path, settings, locked):
    angles = {"rope_theta": 10000.0, **settings}
    folder = copied(llama, tmp_path / "model", lambda _: None, rope_parameters=angles)
    model = TorchModel(find_weights(str(folder)))
    with model.guard:
        is_locked = isinstance(model.guard, type(threading.Lock())) and model.guard.locked()
    assert is_locked is locked


def test_a_training_has_the_threads_that_a_loaded_model_leaves_unused(model):
    assert torch.get_num_threads() == 1
    with torch_model.all_threads():
        assert torch.get_num_threads() == torch_model._default_threads()
    assert torch.get_num_threads() == 1
