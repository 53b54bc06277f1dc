"""Run by hand: every cheating patch of tests/attacks against the verifiers of a sealed and a plain Harbor task.

Each runs in a fresh container of real Docker, as Harbor starts it. It needs an image with pytest and with what a sealed
verifier installs (tests/support/images.py makes one): `python tests/peers/harbor_attacks.py IMAGE OUT.json`. Patches
that need a sandbox which isolates are marked `isolated` in their files; both verifiers are containers.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.cli.main import main as ssr
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.checks.validator import Validation
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import SCHEMA_VERSION, BugArtifact
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store
from pytest_ssr.storage.verdict_store import Verdicts

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "attacks"), str(TESTS / "support")]
WORKERS = 2


def prepare(folder: Path, image: str) -> dict[str, Path]:
    """Export the project of the attacks with its bug, sealed and plain; return the task of each."""
    from conftest import BUG, FILES, WEAK
    from conftest import TESTS as FILES_OF_TESTS

    project = folder / "project"
    for name, text in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    store = Store(project / ".ssr")
    runner = open_runner(project, store, settings=RuleSettings())
    original = CodebaseState(runner.snapshot)
    buggy = original.replace({path: FileEntry(text.encode()) for path, text in BUG.items()})
    weak = original.replace({path: FileEntry(text.encode()) for path, text in WEAK.items()})
    artifact = BugArtifact(
        script=default_script(FILES_OF_TESTS, options=()),
        test_files=FILES_OF_TESTS,
        parser=default_parser(),
        bug=buggy.patch_from(original),
        weaken=weak.patch_from(original),
    )
    verdict = Validation(artifact, runner.scoped()).verdict()
    assert verdict.valid, verdict.explanation
    info = {
        "schema_version": SCHEMA_VERSION,
        "id": verdict.artifact_id,
        "parent": None,
        "order": 1,
        "repository": "arena",
        "tree_hash": verdict.tree_hash,
        "injector": {"strategy": "mutation", "operator": "by-hand", "model": None, "seed": 0},
        "FAIL_TO_PASS": list(verdict.fail_to_pass),
        "PASS_TO_PASS": list(verdict.pass_to_pass),
        "verdict": verdict.without_times(),
    }
    store.put_artifact(verdict.artifact_id, replace(artifact, info=info))
    Verdicts(store, runner).put(verdict)
    tasks = {}
    for name, flags in (("sealed", []), ("plain", ["--plain"])):
        out = folder / name
        argv = ["export", str(project), "--format", "harbor", "--image", image, "--network", "default"]
        assert ssr([*argv, "--out", str(out), *flags]) == 0
        (tasks[name],) = (out / "train").iterdir()
    return tasks


def docker(*argv: str, data: bytes | None = None) -> str:
    """Run a command of docker and return its output."""
    done = subprocess.run(["docker", *argv], input=data, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    return done.stdout.decode(errors="replace").strip()


def start_tree(task: Path) -> dict[str, bytes]:
    """Return the files that the agent begins with, without the repository."""
    with tarfile.open(task / "environment" / "project.tar.gz") as archive:
        members = [member for member in archive if member.isfile() and not member.name.startswith(".git/")]
        return {member.name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]


def reward(image: str, files: dict[str, bytes]) -> float | None:
    """Return the reward of a verifier for a working tree; None if it has written none."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"testbed/{name}")
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    run = ["--network", "none", "--memory", "2g", "--pids-limit", "512", image, "sh", "-c"]
    script = "mkdir -p /logs/verifier && chmod 777 /logs/verifier && timeout 300 /tests/test.sh >/dev/null 2>&1; "
    container = docker(
        "create", *run, f"{script} cat /logs/verifier/reward.json /logs/verifier/reward.txt 2>/dev/null; true"
    )
    try:
        docker("cp", "-", f"{container}:/", data=packed.getvalue())
        text = docker("start", "--attach", container)
    except RuntimeError:
        return None
    finally:
        docker("rm", "--force", container)
    try:
        value = json.loads(text.splitlines()[0]) if text else None
    except ValueError:
        return None
    return float(value["reward"] if isinstance(value, dict) else value) if value is not None else None


def attacked(tree: dict[str, bytes], path: Path) -> dict[str, bytes]:
    """Return the tree with the files of an attack."""
    files = dict(tree)
    for name, text in tomllib.loads(path.read_text())["files"].items():
        if text:
            files[name] = (text.lstrip("\n") or "").encode()
        else:
            files.pop(name, None)
    return files


def run(image: str, out: Path) -> int:
    """Run all attacks; return 1 if a sealed verifier accepts one."""
    with tempfile.TemporaryDirectory(prefix="ssr-harbor-attacks-") as temporary:
        tasks = prepare(Path(temporary), image)
        images = {}
        for name, task in tasks.items():
            images[name] = f"ssr-attacks:{name}"
            docker("build", "--quiet", "--network=none", "--tag", images[name], str(task / "tests"))
        tree = start_tree(tasks["sealed"])
        from conftest import FILES

        honest = {**tree, "pkg/adding.py": FILES["pkg/adding.py"].encode()}
        for name, files, wanted in (("repair", honest, 1.0), ("nothing", tree, 0.0)):
            for kind in images:
                assert reward(images[kind], files) == wanted, (name, kind)
        paths = sorted((TESTS / "attacks" / "patches").glob("*.toml"))
        results: dict[str, dict[str, Any]] = {path.stem: {} for path in paths}

        def one(path: Path) -> None:
            files = attacked(tree, path)
            for kind in images:
                results[path.stem][kind] = reward(images[kind], files)
            print(path.stem, results[path.stem], flush=True)

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(one, paths))
    out.write_text(json.dumps(results, indent=1))
    for kind in images:
        rewards = [result[kind] for result in results.values()]
        accepted = [name for name, result in results.items() if result[kind] == 1.0]
        print(f"{kind}: {len(accepted)} of {len(rewards)} accepted, {rewards.count(None)} without a reward: {accepted}")
    return int(any(result["sealed"] == 1.0 for result in results.values()))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], Path(sys.argv[2])))
