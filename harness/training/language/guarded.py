"""Run TRL's trainers so that nothing is lost: failures become clear errors, and checkpoints count only if complete."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.training.language.cpu_trainers import score_labelled_positions
from harness.training.language.memory import raise_if_exhausted
from harness.training.language.models import widen
from harness.training.language.plan import Plan
from harness.training.language.run_folder import RunFolder, read_lines, step_of
from pytest_ssr.errors import (
    SettingsError,
    SsrError,
    StoreWriteError,
    TrainingError,
    describe_unexpected,
    os_error_advice,
)


def guarded(trainer: type[Any], folder: RunFolder) -> type[Any]:
    """Return a subclass of a trainer that stops at a loss that is not a number, and removes incomplete checkpoints."""

    class Guarded(trainer):  # type: ignore[misc]
        def training_step(self, *args: Any, **options: Any) -> Any:
            loss = super().training_step(*args, **options)
            self._require_finite("loss", float(loss))
            return loss

        def _get_grad_norm(self, *args: Any, **options: Any) -> Any:
            norm = super()._get_grad_norm(*args, **options)
            self._require_finite("norm of the gradient", float(norm))
            return norm

        def _require_finite(self, name: str, value: float) -> None:
            if not math.isfinite(value):
                raise TrainingError(
                    f"the {name} of update {self.state.global_step + 1} is {value}; the update was not made, and the "
                    "checkpoints before it are kept. Look at the data, or begin in another folder (--out) with a lower "
                    "--learning-rate"
                )

        def _save_checkpoint(self, *args: Any, **options: Any) -> None:
            step = self.state.global_step
            try:
                super()._save_checkpoint(*args, **options)
                self.accelerator.wait_for_everyone()  # Each process writes a file of its own.
                if self.args.should_save:
                    folder.mark_complete(step, self.checkpoints_to_keep)
            except Exception as error:
                # torch and safetensors raise errors of their own if a write fails.
                folder.drop_checkpoint(step)
                raise_if_exhausted(error)
                raise _write_error(folder, f"the checkpoint of update {step}", error) from None

    Guarded.__name__ = trainer.__name__
    return Guarded


def _write_error(folder: RunFolder, what: str, error: Exception) -> StoreWriteError:
    if isinstance(error, OSError):
        detail = os_error_advice(error, option="--out")
    else:
        free = shutil.disk_usage(folder.path).free / 2**20
        detail = f"{describe_unexpected(error)}; {free:.0f} MiB of the disk are free"
    return StoreWriteError(f"{folder.path}: {what} cannot be written: {detail}")


def build(
    trainer: type[Any], config: Callable[..., Any], arguments: Mapping[str, Any], folder: RunFolder, **options: Any
) -> Any:
    """Return a guarded trainer with a configuration of these arguments.

    Raises SettingsError for what TRL refuses, and TrainingError without enough memory.
    """
    try:
        if arguments.get("use_cpu"):
            score_labelled_positions()
        return guarded(trainer, folder)(args=config(**arguments), **options)
    except Exception as error:
        raise_if_exhausted(error)  # The trainer moves the model to the GPU.
        if isinstance(error, ValueError | NotImplementedError | ImportError):
            raise SettingsError(f"{trainer.__name__} refuses the settings: {' '.join(str(error).split())}") from None
        raise


def metrics_writer(folder: RunFolder, watch: Callable[[str], None]) -> Any:
    """Return a callback that appends the metrics of each logged update to the run's folder."""
    from transformers import TrainerCallback

    class MetricsWriter(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.logged = time.monotonic()

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if control.should_save:
                # A run that continues from this checkpoint averages from here on, so this one has to do so as well.
                control.should_log = True

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
            if state.is_world_process_zero and logs and ("loss" in logs or "reward" in logs):
                known = {name: value for name, value in logs.items() if _is_finite(value)}
                now = time.monotonic()
                known["seconds"], self.logged = round(now - self.logged, 3), now
                folder.append(folder.metrics, [{"step": state.global_step, **known, **_gpu_memory()}])
                shown = ", ".join(
                    f"{name} {logs[name]:.4f}" for name in ("loss", "reward") if logs.get(name) is not None
                )
                watch(f"update {state.global_step} of {state.max_steps}: {shown}")

    return MetricsWriter()


def _gpu_memory() -> dict[str, float]:
    """Return the most memory that tensors have taken on this process's GPU until now, in GiB; nothing without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return {}
    return {"peak_gpu_gib": round(torch.cuda.max_memory_allocated() / 2**30, 3)}


def _is_finite(value: Any) -> bool:
    return value is None or isinstance(value, str) or math.isfinite(value)


def train(trainer: Any, plan: Plan, folder: RunFolder) -> int:
    """Train from the last checkpoint to the end; return the update it began after.

    Raises TrainingError or StoreWriteError if it cannot go on.
    """
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    trainer.checkpoints_to_keep = plan.saving.keep
    last: Path | None = folder.last_checkpoint()
    begun = step_of(last)
    if is_main():
        folder.cut_back(begun)
    # TRL counts from 0 when a run continues, except for grpo.
    trainer._total_train_tokens = _tokens_before(folder, begun)
    try:
        if plan.base.dtype == "auto" and not plan.optimization.sharding:
            # FSDP wants the same type in all weights of a group.
            widen(trainer.model)
        trainer.train(resume_from_checkpoint=str(last) if last is not None else None)
    except SsrError:
        raise
    except Exception as error:
        raise_if_exhausted(error)
        if isinstance(error, OSError):
            raise
        step = trainer.state.global_step
        raise TrainingError(f"the training ended after update {step}: {describe_unexpected(error)}") from error
    return begun


def _tokens_before(folder: RunFolder, step: int) -> int:
    """Return the number of tokens of all updates up to a checkpoint."""
    lines = read_lines(folder.metrics) if step else []
    return int(max((line.get("num_tokens", 0) for line in lines if line["step"] <= step), default=0))


def save_model(trainer: Any, folder: RunFolder) -> None:
    """Write the trained model; raises StoreWriteError if that fails. The last checkpoint has it, too."""
    try:
        trainer.save_model(str(folder.model))
    except Exception as error:
        raise_if_exhausted(error)
        raise _write_error(folder, "the model", error) from None


def is_main() -> bool:
    """Whether this is the first of several processes, which writes the files."""
    return os.environ.get("RANK", "0") == "0"
