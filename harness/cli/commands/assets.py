"""Run `ssr assets`: list and fetch what a run over a dataset needs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from concurrent.futures import as_completed
from pathlib import Path

from harness.cli.exit_code import ExitCode
from harness.cli.instances import chosen_instances
from harness.cli.terminal import Terminal
from harness.datasets.families import row_of
from harness.evaluation.reports import store_write_errors, write_lines
from harness.exporters.store_rows import is_store
from harness.settings.commands import AssetsSettings
from harness.storage.atomic_write import write_text
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import SandboxError, SettingsError
from pytest_ssr.interrupts import workers
from pytest_ssr.progress import counted
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.sandbox.mirrors import use_mirrors

ROWS, IDS, IMAGES = "evaluation.jsonl", "instance_ids.txt", "docker_images.txt"


def assets(settings: AssetsSettings) -> int:
    """Write the lists and pull the images; return 0 if all are available, 3 if some cannot be pulled."""
    use_mirrors(settings.mirror)
    if is_store(Path(settings.dataset)):
        raise SettingsError(
            f"{settings.dataset} is a store: it contains everything that a run over it needs, and has no images"
        )
    terminal = Terminal(quiet=settings.json)
    instances = chosen_instances(settings.dataset, settings.selection)
    images = list(dict.fromkeys(i.image for i in instances if i.image))
    without_image = [i.id for i in instances if not i.image]
    with store_write_errors(settings.out):
        write_text(settings.out / IDS, "".join(f"{i.id}\n" for i in instances))
        write_text(settings.out / IMAGES, "".join(f"{name}\n" for name in images))
    write_lines(settings.out / ROWS, [row_of(i) for i in instances])
    terminal.echo(
        f"{counted(len(instances), 'instance')}, {counted(len(images), 'image')}: {display_path(settings.out)}",
        "heading",
    )
    for name in without_image:
        terminal.echo(f"no image: {name} is a bug whose row names none", "missed")
    failed = {} if settings.no_pull or not images else _pull_all(images, settings.jobs, terminal)
    if settings.json:
        report = {
            "instances": len(instances),
            "images": images,
            "without_image": without_image,
            "failed": failed,
            "pulled": not settings.no_pull,
        }
        print(json.dumps(report, indent=1))
    return ExitCode.BROKEN if failed else ExitCode.DONE


def _pull_all(images: Sequence[str], jobs: int, terminal: Terminal) -> dict[str, str]:
    """Pull missing images; return errors by image. Raises SandboxUnavailableError without an engine."""
    with contextlib.closing(DockerProvider()) as provider:
        provider.connect()
    failed = dict[str, str]()
    with workers(jobs) as pool:
        futures = {pool.submit(_pull, name): name for name in images}
        for number, future in enumerate(as_completed(futures), 1):
            name = futures[future]
            try:
                future.result()
                terminal.echo(f"here: {name}", "valid")
            except SandboxError as error:
                failed[name] = str(error)
                terminal.echo(f"missing: {name}: {error}", "bad")
            terminal.status(f"{number} of {len(images)} images, {len(failed)} missing")
    return failed


def _pull(image: str) -> None:
    with contextlib.closing(DockerProvider(image)) as provider:
        provider.image_digest()
