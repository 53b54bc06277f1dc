"""Build the images of Harbor tasks, push them, and pin each task to their digests.

Some readers refuse a task that has only a Dockerfile. Images of one project and environment share their first layers.
"""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_ssr.errors import SandboxUnavailableError, SettingsError
from pytest_ssr.sandbox.docker.engine import client_program, engine_variables

_PASSED_ON = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
"""Variables that builds get if they are set: addresses of mirrors, which images do not keep."""
_SECTIONS = {"environment": "[environment]\n", "tests": "[verifier.environment]\n"}
"""The folders that images are built from, and the sections of task.toml that name the images."""


def pin_images(
    tasks: Sequence[Path],
    repository: str,
    status: Callable[[str], None],
    check: Callable[[Path, str], None] = lambda task, image: None,
) -> None:
    """Build, push and pin the images of tasks. repository: a prefix of image names, with the registry's address.

    check: gets each task with its agent's image, and raises an error for one that cannot be published. Raises
    SandboxUnavailableError without a Docker engine, SettingsError if an image cannot be built or pushed.
    """
    for number, task in enumerate(tasks, 1):
        status(f"images: {number} of {len(tasks)} tasks")
        configuration = task / "task.toml"
        text = configuration.read_text(encoding="utf-8")
        for folder, section in _SECTIONS.items():
            if (task / folder / "Dockerfile").is_file():
                image = _pushed(task / folder, _name_of(task, folder, repository))
                text = text.replace(section, f'{section}docker_image = "{image}"\n')
                if folder == "environment":
                    check(task, image)
        configuration.write_text(text, encoding="utf-8")


def image_names(tasks: Sequence[Path], repository: str) -> list[str]:
    """Return the names of the images that tasks get, without digests."""
    folders = [(task, folder) for task in tasks for folder in _SECTIONS if (task / folder / "Dockerfile").is_file()]
    return [_name_of(task, folder, repository) for task, folder in folders]


def is_pinned(task: Path) -> bool:
    """Return whether a task names its images."""
    described = tomllib.loads((task / "task.toml").read_text(encoding="utf-8"))
    return "docker_image" in described["environment"]


def _name_of(task: Path, folder: str, repository: str) -> str:
    return f"{repository}/{task.name.lower()}:{'agent' if folder == 'environment' else 'verifier'}"


def _pushed(context: Path, name: str) -> str:
    """Build and push an image; return its name with its digest."""
    arguments = [f"--build-arg={variable}" for variable in _PASSED_ON if os.environ.get(variable)]
    # Mirrors may be on this machine.
    _docker("build", "--quiet", "--network=host", *arguments, "--tag", name, str(context), does="built")
    _docker("push", "--quiet", name, does="pushed")
    digests = _docker("image", "inspect", "--format", '{{join .RepoDigests " "}}', name, does="found").split()
    own = name.rpartition(":")[0]
    return next(digest for digest in digests if digest.startswith(f"{own}@"))


def _docker(*arguments: str, does: str) -> str:
    program = client_program()
    if program is None:
        raise SandboxUnavailableError(
            "neither docker nor podman is installed", remedy="install one, or export without --images"
        )
    done = subprocess.run(
        [program, *arguments], capture_output=True, check=False, stdin=subprocess.DEVNULL, env=engine_variables()
    )
    if done.returncode:
        reason = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise SettingsError(f"an image cannot be {does}: {reason[-1] if reason else done.returncode}", option="images")
    return done.stdout.decode(errors="replace").strip()
