"""`ssr assets`: what a run over a dataset will need, listed and fetched before it begins."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import as_completed
from pathlib import Path

from harness.commands import BROKEN, DONE
from harness.evaluation.reports import reporting, write_lines
from harness.exporters.stored import is_store
from harness.instances.families import row_of
from harness.options import chosen_instances, require_counts
from harness.terminal import Terminal
from harness.writing import write_text
from pytest_ssr.errors import SandboxError, SettingsError
from pytest_ssr.report import shown
from pytest_ssr.sandbox.docker import DockerProvider
from pytest_ssr.stopping import workers

ROWS, IDS, IMAGES = "evaluation.jsonl", "instance_ids.txt", "docker_images.txt"


def assets(arguments: argparse.Namespace) -> int:
    """Write the lists and pull the images; 0 when all are here, 3 when some cannot be had."""
    require_counts(arguments, "jobs")
    if arguments.mirror:
        os.environ["SSR_IMAGE_PREFIX"] = arguments.mirror
    if is_store(Path(arguments.dataset)):
        raise SettingsError(f"{arguments.dataset} is a store: it has all that a run over it needs, and no images")
    terminal = Terminal(quiet=arguments.json)
    instances = chosen_instances(arguments, arguments.dataset)
    images = list(dict.fromkeys(i.image for i in instances))
    with reporting(arguments.out):
        write_text(arguments.out / IDS, "".join(f"{i.id}\n" for i in instances))
        write_text(arguments.out / IMAGES, "".join(f"{name}\n" for name in images))
    write_lines(arguments.out / ROWS, [row_of(i) for i in instances])
    terminal.say(f"{len(instances)} instances, {len(images)} images: {shown(arguments.out)}", "heading")
    failed = {} if arguments.no_pull else _pulled(images, arguments.jobs, terminal)
    if arguments.json:
        told = {"instances": len(instances), "images": images, "failed": failed, "pulled": not arguments.no_pull}
        print(json.dumps(told, indent=1))
    return BROKEN if failed else DONE


def _pulled(images: Sequence[str], jobs: int, terminal: Terminal) -> dict[str, str]:
    """Pull what is not here; return why by image where that fails. Raises SandboxUnavailableError without an engine."""
    with contextlib.closing(DockerProvider()) as provider:
        provider.connect()
    failed = dict[str, str]()
    with workers(jobs) as pool:
        coming = {pool.submit(_pull, name): name for name in images}
        for number, done in enumerate(as_completed(coming), 1):
            name = coming[done]
            try:
                done.result()
                terminal.say(f"here: {name}", "valid")
            except SandboxError as error:
                failed[name] = str(error)
                terminal.say(f"missing: {name}: {error}", "bad")
            terminal.status(f"{number} of {len(images)} images, {len(failed)} missing")
    return failed


def _pull(image: str) -> None:
    with contextlib.closing(DockerProvider(image)) as provider:
        provider.image_digest()
