"""How a training ends and goes on: kills, errors, trackers, and models that are trained again."""

from __future__ import annotations

import errno
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from language_runs import curve, killed, lines, report, require_adapter, train
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.local_models.torch_model import TorchModel
from harness.local_models.weights import find_weights
from harness.training.language.memory import EXHAUSTED, raise_if_exhausted
from harness.training.language.plan import Base, Method, Optimization, Plan
from harness.training.language.run_folder import RunFolder
from pytest_ssr.errors import SettingsError, TrainingError

pytestmark = pytest.mark.filterwarnings("ignore")  # From third-party packages.
INTERRUPTED = ("--updates", "24", "--accumulation", "2", "--batch", "2", "--learning-rate", "0.02")
INTERRUPTED = (*INTERRUPTED, "--lora-dropout", "0.2", "--log-every", "3", "--checkpoint-every", "4")


@pytest.fixture(scope="module", params=["sft", "bc", "dpo", "kto"])
def finished(
    request: pytest.FixtureRequest, rollouts: Path, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """Return a method, and the folder of a finished run of it."""
    out = tmp_path_factory.mktemp("finished") / request.param
    assert train(request.param, rollouts, model, out, *INTERRUPTED) == ExitCode.DONE
    return request.param, out


def test_a_killed_run_continues_with_the_same_loss_curve(
    finished: tuple[str, Path], rollouts: Path, model: Path, tmp_path: Path
) -> None:
    method, whole = finished
    out = tmp_path / "run"
    argv = ["train", method, str(rollouts), "--model", str(model), "--out", str(out), *INTERRUPTED]
    killed(argv, out, after=4)
    before = len(lines(out))
    assert 4 <= before < 12
    (out / "checkpoints" / "checkpoint-22").mkdir()  # One whose writing a kill has ended.
    assert main(argv) == ExitCode.DONE
    assert report(out)["continued_after"] >= 4
    assert [line["step"] for line in lines(out)] == [3, 4, 6, 8, 9, 12, 15, 16, 18, 20, 21, 24]
    assert curve(out) == curve(whole)
    weights = [(run / "model" / "adapter_model.safetensors").read_bytes() for run in (whole, out)]
    assert weights[0] == weights[1]


def test_an_adapter_loads_with_peft_and_is_trained_on(
    finished: tuple[str, Path], rollouts: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    method, out = finished
    require_adapter(model, out / "model")
    short = ("--updates", "1", "--accumulation", "1", "--batch", "6")
    capsys.readouterr()
    assert train(method, rollouts, model, out, *short) == ExitCode.USAGE, "settings that differ"
    assert capsys.readouterr().err.count("\n") == 1
    short = (*short, "--tokens-of", "model") if method in ("sft", "bc") else short
    assert train(method, rollouts, out / "model", tmp_path / "next", *short) == ExitCode.DONE
    if method in ("sft", "bc"):
        assert lines(tmp_path / "next")[0]["loss"] < lines(out)[0]["loss"]
    found = find_weights(str(tmp_path / "next" / "model"))
    assert found.adapters == ((out / "model").resolve(), tmp_path / "next" / "model")


def test_a_finished_run_writes_the_merged_model_when_it_is_called_again(
    finished: tuple[str, Path], rollouts: Path, model: Path
) -> None:
    method, out = finished
    assert train(method, rollouts, model, out, *INTERRUPTED, "--merged") == ExitCode.DONE
    ids = torch.arange(8)[None]
    expected = TorchModel(find_weights(str(out / "model"))).model(ids).logits
    assert torch.allclose(AutoModelForCausalLM.from_pretrained(out / "merged")(ids).logits, expected, atol=1e-4)
    assert AutoTokenizer.from_pretrained(out / "merged").chat_template


def test_only_the_uppermost_layers_are_adapted(rollouts: Path, model: Path, tmp_path: Path) -> None:
    short = ("--updates", "1", "--accumulation", "1", "--lora-layers", "1", "--merged")
    assert train("sft", rollouts, model, tmp_path / "run", *short) == ExitCode.DONE
    layers = AutoModelForCausalLM.from_pretrained(model).config.num_hidden_layers
    assert layers > 1
    with safe_open(tmp_path / "run" / "model" / "adapter_model.safetensors", "pt") as weights:
        adapted = {name.partition(".layers.")[2].partition(".")[0] for name in weights.keys()}  # noqa: SIM118
        modules = {name.split(".")[-3] for name in weights.keys()}  # noqa: SIM118
    assert adapted == {str(layers - 1)}
    assert modules == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert (tmp_path / "run" / "merged" / "config.json").is_file()


def test_a_finished_run_cannot_be_extended(rollouts: Path, model: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    plan = Plan(Method.SFT, tmp_path, Base("model"), optimization=Optimization(updates=2))
    folder.begin(plan.identity(), [], [])
    folder.append(folder.metrics, [{"step": 1}])
    longer = replace(plan, optimization=Optimization(updates=4))
    other = replace(plan, optimization=Optimization(updates=4, learning_rate=1.0))
    for changed, has_remedy in ((longer, True), (other, False)):
        with pytest.raises(SettingsError) as raised:
            folder.require_same(changed.identity())
        assert (str(folder.model) in str(raised.value)) is has_remedy


def test_dora_loads_with_peft_and_merges(rollouts: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    short = ("--updates", "3", "--accumulation", "1", "--learning-rate", "0.05", "--adapter", "dora")
    assert train("sft", rollouts, model, out, *short, "--lora-rank", "4") == ExitCode.DONE
    require_adapter(model, out / "model")
    assert json.loads((out / "model" / "adapter_config.json").read_text())["use_dora"]
    assert AutoTokenizer.from_pretrained(out / "model").chat_template


def test_a_gradient_that_is_not_a_number_ends_the_run(
    rollouts: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import trl

    compute = trl.SFTTrainer.compute_loss

    def broken(trainer: Any, given: Any, *rest: Any, **options: Any) -> Any:
        given.get_input_embeddings().weight.register_hook(lambda gradient: gradient * math.nan)
        return compute(trainer, given, *rest, **options)

    monkeypatch.setattr(trl.SFTTrainer, "compute_loss", broken)
    out = tmp_path / "out"
    assert train("sft", rollouts, model, out, "--updates", "1", "--adapter", "none") == ExitCode.BROKEN
    assert not (out / "model").exists()


def test_a_loss_that_is_not_a_number_ends_the_run(
    rollouts: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken" / "model"
    loaded = AutoModelForCausalLM.from_pretrained(model)
    with torch.no_grad():
        loaded.get_input_embeddings().weight.fill_(math.nan)
    loaded.save_pretrained(broken)
    AutoTokenizer.from_pretrained(model).save_pretrained(broken)
    assert train("sft", rollouts, broken, tmp_path / "out", "--updates", "3") == ExitCode.BROKEN
    assert "Traceback" not in capsys.readouterr().err


def test_a_checkpoint_that_cannot_be_written_ends_the_run_and_keeps_the_last(
    rollouts: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    options = ("--updates", "4", "--accumulation", "1", "--checkpoint-every", "2")
    argv = ["train", "sft", str(rollouts), "--model", str(model), "--out", str(out), *options]
    limited = f"""
import resource, sys
from harness.training.language.run_folder import RunFolder
from harness.cli.main import main
mark = RunFolder.mark_complete
def then_full(folder, step, keep):
    mark(folder, step, keep)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))  # As a disk that is full.
RunFolder.mark_complete = then_full
sys.exit(main({argv!r}))
"""
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.BROKEN, done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in out.glob("checkpoints/checkpoint-*")] == ["checkpoint-2"]
    assert train("sft", rollouts, model, out, *options) == ExitCode.DONE
    assert report(out)["continued_after"] == 2


def too_much(*_: object, **__: object) -> None:
    torch.empty(1 << 50)


@pytest.mark.parametrize(
    "place",
    [
        "transformers.AutoModelForCausalLM.from_pretrained",
        "transformers.Trainer._move_model_to_device",
        "harness.training.language.guarded.widen",
        "trl.SFTTrainer.compute_loss",
        "transformers.Trainer._save_checkpoint",
    ],
)
def test_memory_that_is_exhausted_ends_the_run(
    place: str,
    rollouts: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(place, too_much)
    assert train("sft", rollouts, model, tmp_path / "out", "--updates", "1") == ExitCode.BROKEN
    assert capsys.readouterr().err.rstrip().endswith(EXHAUSTED)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("unable to mmap 373391416 bytes from file <model.safetensors>: Cannot allocate memory (12)"),
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
    ids=str,
)
def test_exhausted_memory_is_recognised(error: Exception) -> None:
    with pytest.raises(TrainingError):
        raise_if_exhausted(error)
    outer = RuntimeError("cannot be loaded")
    outer.__cause__ = error
    with pytest.raises(TrainingError):
        raise_if_exhausted(outer)


def test_other_errors_are_not_exhausted_memory() -> None:
    for error in (RuntimeError("shapes differ"), OSError(errno.ENOSPC, "full"), ValueError("out of memory")):
        raise_if_exhausted(error)


def test_a_tracker_has_the_loss(rollouts: Path, model: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    assert train("sft", rollouts, model, out, "--updates", "3", "--tracker", "tensorboard") == ExitCode.DONE
    [file] = out.glob("checkpoints/runs/*/events.out.tfevents.*")
    events = EventAccumulator(str(file)).Reload().Scalars("train/loss")
    assert [event.step for event in events] == [1, 2, 3]
    assert [event.value for event in events] == pytest.approx([line["loss"] for line in lines(out)])


def test_what_a_tracker_prints_is_not_part_of_the_report(
    rollouts: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("harness.training.language.guarded.widen", lambda model: print("a new run"))
    assert train("sft", rollouts, model, tmp_path / "run", "--updates", "1", "--json") == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["updates"] == 1


def test_a_finished_run_is_not_repeated(rollouts: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train("sft", rollouts, model, out, "--updates", "1") == ExitCode.DONE
    before = (out / "metrics.jsonl").stat().st_mtime_ns
    assert train("sft", rollouts, model, out, "--updates", "1") == ExitCode.DONE
    assert (out / "metrics.jsonl").stat().st_mtime_ns == before
