"""Build images for tests of containers."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rows import git

from pytest_ssr.sandbox.docker.provider import DockerProvider

TAGS = ("plain", "testbed", "built", "conda")
ENVIRONMENT = "/opt/miniconda3/envs/testbed"
TRACKED = {
    ".gitignore": "*.so\n*.egg-info/\n_version.py\nbuild/\n",
    "shop/__init__.py": "from shop._version import version\n",
    "shop/old.py": "def old():\n    return 1\n",
    "shop/core.py": "def add(a, b):\n    return a - b\n",
}
LATER = "def add(a, b):\n    return a + b  # the answer\n"
BUILT = {
    "shop/_version.py": "version = '1.2'\n",
    "shop/fast.so": "\x7fELF",
    "shop.egg-info/PKG-INFO": "Name: shop\n",
    "build/lib/shop/generated.py": "x = 1\n",
    "notes.txt": "neither tracked nor ignored\n",
}
"""What a build leaves beside the tracked files."""


def write_testbed(folder: Path, version: str = "4") -> None:
    """Create a repository as an image in SWE-bench's layout has it: built in place, with a later commit in its history.

    version: that of git's index.
    """
    files = {**TRACKED, **BUILT, "build/lib/shop/core.py": TRACKED["shop/core.py"], "dist/shop-1.2.tar.gz": "old"}
    files |= {
        "shop/__pycache__/core.cpython-311.pyc": "old",
        "build/lib/shop/__pycache__/generated.cpython-311.pyc": "",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "shop" / "latest.so").symlink_to("fast.so")
    (folder / "build" / "temp").mkdir()
    git(folder, "init", "-q")
    git(folder, "config", "index.version", version)
    git(folder, "add", *TRACKED)
    git(folder, "commit", "-q", "-m", "first")
    (folder / "shop" / "core.py").write_text(LATER)
    git(folder, "commit", "-q", "-a", "-m", "later")
    git(folder, "reset", "-q", "--hard", "HEAD~")


@contextlib.contextmanager
def images_of(client: Any, name: str) -> Iterator[dict[str, str]]:
    """Build images on a base image with Python, as tags of a name: with pytest, and in SWE-bench's layout, empty and
    with a project built in place.
    """
    base = os.environ.get("SSR_TEST_IMAGE", "python:3.12-slim")
    provider = DockerProvider(base)
    provider.image_digest()
    provider.close()
    output = client.containers.run(
        base, ["python3", "-c", "import site; print(site.getsitepackages()[-1])"], remove=True
    )
    site = output.decode().strip().lstrip("/")
    container = client.api.create_container(base, ["true"])["Id"]
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for package in ("pytest", "iniconfig", "packaging", "pluggy", "pygments"):
            for file in metadata.files(package) or ():
                if ".." not in file.parts:
                    archive.add(file.locate(), f"{site}/{file}")
    client.api.put_archive(container, "/", raw.getvalue())
    client.api.commit(container, name, "plain")
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        link = tarfile.TarInfo("opt/miniconda3/envs/testbed/bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, "/usr/bin/python3"
        archive.addfile(link)
    client.api.put_archive(container, "/", raw.getvalue())
    client.api.commit(container, name, "testbed", changes=["WORKDIR /testbed/", "VOLUME /data"])
    raw = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=raw, mode="w") as archive:
        write_testbed(Path(folder))
        archive.add(folder, "testbed", filter=_readable_by_all)
    client.api.put_archive(container, "/", raw.getvalue())
    client.api.commit(container, name, "built", changes=["WORKDIR /testbed"])
    client.api.remove_container(container, force=True)
    _commit_conda(client, name)
    yield {"base": base, **{tag: f"{name}:{tag}" for tag in TAGS}}
    for tag in TAGS:
        # Another worker may have removed it.
        with contextlib.suppress(Exception):
            client.images.remove(f"{name}:{tag}", force=True)


def _commit_conda(client: Any, name: str) -> None:
    """Add an image with an environment of its own, as conda has them, and other interpreters before it on PATH."""
    script = f"""
        mkdir -p {ENVIRONMENT} && python3 -m venv --without-pip --system-site-packages {ENVIRONMENT} &&
        mkdir -p /opt/miniconda3/bin && ln -s /usr/bin/python3 /opt/miniconda3/bin/python3 &&
        for f in {ENVIRONMENT}/bin/tool /opt/miniconda3/bin/tool /opt/miniconda3/bin/conda; do
            echo '#!/bin/sh' > $f && chmod 755 $f || exit 1
        done
    """
    container = client.containers.create(f"{name}:built", ["sh", "-c", script], network_disabled=True, working_dir="/")
    container.start()
    assert container.wait()["StatusCode"] == 0, container.logs()
    path = "PATH=/opt/miniconda3/bin:/usr/local/bin:/usr/bin:/bin"
    client.api.commit(container.id, name, "conda", changes=["WORKDIR /testbed", f"ENV {path}", "CMD bash"])
    container.remove(force=True)


def write_folder_image(root: Path, programs: Sequence[str] = ()) -> Path:
    """Create a folder image with this interpreter, pytest, a shell, and a few programs with their libraries."""
    for name in ("dev", "proc", "sys", "tmp", "etc", "usr/bin"):
        (root / name).mkdir(parents=True)
    for link in ("/bin", "/sbin", "/lib", "/lib64"):
        (root / link[1:]).symlink_to(f"usr{link}")
    (root / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\nssr:x:1000:1000::/:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\nssr:x:1000:\n")
    library = Path(sysconfig.get_path("stdlib"))
    python = Path(sys.executable).resolve()
    files = [str(shutil.which(name)) for name in ("sh", "env", "cat", "ls", "id", "true", *programs)]
    objects = [*files, str(python), *map(str, (library / "lib-dynload").glob("*.so"))]
    for line in subprocess.run(["ldd", *objects], capture_output=True, text=True, check=True).stdout.splitlines():
        files += [word for word in line.split() if word.startswith("/") and not word.endswith(":")][:1]
    for file in dict.fromkeys(files):
        target = "/usr" + file if file.startswith(("/lib", "/bin")) else file
        (root / target[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / target[1:])
    unwanted = shutil.ignore_patterns(
        "test", "tests", "idlelib", "site-packages", "__pycache__", "config-*", "ensurepip"
    )
    shutil.copytree(library, root / str(library)[1:], ignore=unwanted, symlinks=True)
    (root / str(python)[1:]).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(python, root / str(python)[1:])
    (root / "usr/bin/python3").symlink_to(python)
    program = "import site; print(site.getsitepackages()[0])"
    done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True)
    packages = root / done.stdout.strip()[1:]
    for name in ("pytest", "iniconfig", "packaging", "pluggy", "pygments"):
        for file in metadata.files(name) or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), packages / file)
    return root


VERIFIER = ("cyclopts", "msgspec", "packaging", "pytest", "pyyaml", "tree-sitter", "tree-sitter-python")
"""What the verifier of a Harbor task installs."""


@contextlib.contextmanager
def verifier_image() -> Iterator[str]:
    """Build an image with pytest that also has what a sealed verifier installs, so that its build needs no index."""
    base = os.environ.get("SSR_TEST_IMAGE", "python:3.11-slim")
    # Other workers build and remove theirs.
    name = f"ssr-test-verifier:{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        names = [*_needed_by(VERIFIER)]
        for package in names:
            for file in metadata.files(package) or ():
                if ".." not in file.parts and file.suffix != ".pyc":
                    target = Path(folder, "site", file)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file.locate(), target)
        Path(folder, "Dockerfile").write_text(
            f"FROM {base}\n"
            "RUN ln -sf $(command -v python3) /usr/local/bin/python && python3 -m venv /opt/ssr\n"
            "COPY site /opt/ssr/lib/python3.11/site-packages\n"
            "RUN site=$(python3 -c 'import site; print(site.getsitepackages()[0])') && mkdir -p $site && "
            "cp -r /opt/ssr/lib/python3.11/site-packages/* $site/\n"
        )
        build = ["docker", "build", "--quiet", "--network=none", "--tag", name, folder]
        subprocess.run(build, check=True, capture_output=True)
    yield name
    subprocess.run(["docker", "image", "rm", "--force", name], check=False, capture_output=True)


def _needed_by(packages: Sequence[str]) -> Iterator[str]:
    """Yield packages, and all that they need without an extra."""
    waiting, seen = list(packages), set[str]()
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in seen:
            continue
        seen.add(name)
        yield name
        for text in metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)


def _readable_by_all(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mode |= 0o555 if entry.isdir() else 0o444
    return entry
