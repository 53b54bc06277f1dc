"""Select the instances that a command works on."""

from __future__ import annotations

from pathlib import Path

from harness.datasets import Instance
from harness.datasets.loading import Selection, read_dataset, read_instances
from harness.settings.sections import ExecutionSettings, InstanceSettings, SelectionSettings
from pytest_ssr.errors import SettingsError
from pytest_ssr.sandbox import SandboxName


def chosen_instances(dataset: str | Path, selection: SelectionSettings) -> list[Instance]:
    """Return the selected instances of a dataset; raises InstanceError or SettingsError."""
    return _selected(read_instances(str(dataset), split=selection.split), selection)


def chosen_rows(dataset: str | Path, selection: SelectionSettings) -> list[Instance]:
    """Return the selected rows of a dataset, invalid ones included; raises an error if no row is valid."""
    return _selected(read_dataset(str(dataset), split=selection.split), selection)


def _selected(instances: list[Instance], selection: SelectionSettings) -> list[Instance]:
    return Selection(selection.only, selection.shuffle, selection.slice).select(instances)


def require_own_images(instances: InstanceSettings, execution: ExecutionSettings) -> None:
    """Raise SettingsError if --images is combined with --sandbox or --python."""
    if not instances.images:
        return
    if SandboxName.parse(execution.sandbox).address:
        raise SettingsError(
            "--images takes the sandboxes of this machine or of a cluster, and a sandbox server shows one image: start "
            "it there with ssr sandbox-server --sandbox docker:IMAGE and omit --images here, or use --ray instead of "
            "--sandbox for an image per row",
            option="images",
        )
    if execution.python is not None or execution.sandbox != "auto":
        raise SettingsError("--images has its own sandboxes and interpreters; omit --sandbox and --python")


def require_own_containers(instances: InstanceSettings, execution: ExecutionSettings) -> None:
    """Raise SettingsError for an option that says where tests run: task directories describe their containers."""
    given = {
        "images": bool(instances.images),
        "sandbox": execution.sandbox not in ("auto", "docker"),
        "python": execution.python is not None,
    }
    option = next((name for name, is_given in given.items() if is_given), None)
    if option is not None:
        raise SettingsError(
            f"--{option} is not for task directories, which run in the containers that they describe; omit it",
            option=option,
        )
