"""Run `ssr publish`: check a folder of `ssr export`, and send it to a hub or to git."""

from __future__ import annotations

import importlib
import json
import tempfile
from pathlib import Path
from typing import Any

from harness.cli.commands.export import require_no_answer
from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.exporters.harbor_images import image_names, is_pinned, pin_images
from harness.publishing.contents import TASK
from harness.publishing.publication import Publication, prepare
from harness.publishing.remotes import Remote, plan_for
from harness.settings.results import PublishSettings
from pytest_ssr.errors import MissingExtraError, SettingsError
from pytest_ssr.progress import counted


def publish(settings: PublishSettings) -> int:
    """Publish a folder, or print what would be published."""
    terminal = Terminal(quiet=settings.json)
    if not settings.folder.is_dir():
        raise SettingsError(f"{settings.folder} is not a folder of ssr export")
    with tempfile.TemporaryDirectory(prefix="ssr-publish-") as temporary:
        remote = _remote(settings, Path(temporary, "repository"))
        terminal.status("checking the files")
        publication = prepare(settings.folder, Path(temporary, "published"), settings.allowed)
        tasks = sorted(path.parent for path in publication.folder.rglob(TASK))
        _require_of_images(settings, tasks)
        images = image_names(tasks, settings.images) if settings.images else []
        if settings.dry_run:
            _print(settings, terminal, publication, remote.name, images)
            return ExitCode.DONE
        present = remote.present()
        plan = plan_for(publication.folder, publication.digests(), present, replace=settings.replace)
        if settings.images:
            pin_images(tasks, settings.images, terminal.status, require_no_answer)
            publication.seal()
        terminal.status(f"sending {counted(len(plan.written), 'file')}")
        where = remote.send(publication.folder, plan, present)
        _print(settings, terminal, publication, remote.name, images, where)
    return ExitCode.DONE


def _require_of_images(settings: PublishSettings, tasks: list[Path]) -> None:
    if settings.images and not tasks:
        raise SettingsError(f"--images is for tasks of Harbor; {settings.folder} has none", option="images")
    if settings.images and any(map(is_pinned, tasks)):
        raise SettingsError(f"the tasks of {settings.folder} name their images already", option="images")


def _remote(settings: PublishSettings, folder: Path) -> Remote:
    """Return the destination. folder: where it may keep files meanwhile."""
    kind, name, branch = settings.target
    if kind == "git":
        from harness.publishing.git_remote import GitRemote

        return GitRemote(name, branch, folder, tag=settings.tag)
    try:
        hub: Any = importlib.import_module("harness.publishing.hub")
    except ImportError:
        raise MissingExtraError("huggingface_hub", "publish") from None
    remote: Remote = hub.HubRemote(name, branch, tag=settings.tag, public=settings.public)
    return remote


def _print(
    settings: PublishSettings,
    terminal: Terminal,
    publication: Publication,
    name: str,
    images: list[str],
    where: str = "",
) -> None:
    """Print what is published. where: the commit; empty if nothing was sent."""
    files = publication.files()
    size = sum(files.values())
    if settings.json:
        found = {"to": name, "commit": where or None, "dry_run": settings.dry_run, "bytes": size}
        print(json.dumps({**found, "files": files, "images": images}, indent=1))
        return
    if settings.dry_run:
        for path, count in files.items():
            terminal.echo(f"{count:>12}  {path}")
        for image in images:
            terminal.echo(f"       image  {image}")
    verb = "would be published" if settings.dry_run else "published"
    terminal.echo(f"{counted(len(files), 'file')}, {size} bytes, {verb} to {name}", "heading")
    if where:
        terminal.echo(where)
