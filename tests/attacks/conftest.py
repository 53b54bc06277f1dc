"""Fixtures for attacks: a small project with a folder beside it, hostile artifacts, and checks of the machine."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.checks import SEVEN, Finding, ValidationContext
from pytest_ssr.checks.validator import Validation
from pytest_ssr.execution.run_cache import MemoryRecords
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.grading import Grade, grade_patch
from pytest_ssr.patch import FileEntry, Patch, make_patch
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.verdict import CheckResult, Verdict
from pytest_ssr.sandbox.host import etc
from pytest_ssr.sandbox.protocol import MIB
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

ADDING = "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return add(a, a)\n"
TEST_ADD = (
    "from pkg.adding import add, double\n\n\ndef test_nothing():\n    assert add(0, 0) == 0\n\n\n"
    "def test_double_nothing():\n    assert double(0) == 0\n"
)
TEST_ADD_MORE = "\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\ndef test_double():\n    assert double(2) == 4\n"
FILES = {
    "pkg/__init__.py": "",
    "pkg/adding.py": ADDING,
    "pkg/texts.py": "def shout(text):\n    return text.upper()\n",
    "tests/test_add.py": TEST_ADD + TEST_ADD_MORE,
    "tests/test_texts.py": 'from pkg.texts import shout\n\n\ndef test_shout():\n    assert shout("a") == "A"\n',
    "conftest.py": "",
    "pytest.ini": "[pytest]\n",
}
BUG = {"pkg/adding.py": ADDING.replace("a + b", "a - b")}
WEAK = {"tests/test_add.py": TEST_ADD}
TESTS = ("tests/test_add.py", "tests/test_texts.py")
FAIL_TO_PASS = ("tests/test_add.py::test_add", "tests/test_add.py::test_double")
PASS_TO_PASS = (
    "tests/test_add.py::test_double_nothing",
    "tests/test_add.py::test_nothing",
    "tests/test_texts.py::test_shout",
)
ISOLATE = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("bubblewrap", "docker", "apptainer")]
GVISOR = pytest.param("gvisor", marks=pytest.mark.gvisor)
FEW = 48
EACH = ["process", *ISOLATE]
TIME_LIMIT_S = 6.0
EVERY, ALL_ON_GVISOR = os.environ.get("SSR_TEST_EVERY"), os.environ.get("SSR_TEST_GVISOR")
TURN = int(os.environ.get("SSR_TEST_TURN") or 0)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each file of attacks to bubblewrap and, in turn, to one of the others; with SSR_TEST_EVERY to all.

    A few also run on gvisor, which starts slowly; with SSR_TEST_GVISOR all of them. Each SSR_TEST_TURN chooses
    others: in three consecutive turns every attack runs on docker, apptainer and process.
    """
    folder = getattr(metafunc.function, "attacks", None)
    if folder is None:
        return
    paths = sorted(Path(__file__).with_name(folder).glob("*.toml"))
    first, *others = [*ISOLATE, "process"]
    pairs = [
        (path, s) for i, path in enumerate(paths) for s in (first, *(others if EVERY else [others[(i + TURN) % 3]]))
    ]
    pairs += [(path, GVISOR) for i, path in enumerate(paths) if ALL_ON_GVISOR or (i - TURN) % FEW == 0]
    sandboxes = [(path, *(s.values if not isinstance(s, str) else (s,))) for path, s in pairs]
    marks = [s.marks if not isinstance(s, str) else () for _, s in pairs]
    metafunc.parametrize(
        ("path", "chosen"),
        [pytest.param(*values, marks=m) for values, m in zip(sandboxes, marks, strict=True)],
        indirect=["chosen"],
        ids=[f"{path.stem}-{sandbox}" for path, sandbox in sandboxes],
    )


# It kills the engine, which every other test that uses it would notice.
collect_ignore = [] if "SSR_TEST_ENGINE" in os.environ else ["test_engine.py"]
MARKER = f"hostile-{os.getpid()}-{secrets.token_hex(4)}"
ENGINE = ("containerd", "dockerd", "runc", "runsc")
SHARED_FOLDERS = (Path(tempfile.gettempdir()), Path.home(), Path("/dev/shm"), Path("/var/tmp"), Path("/"))

Texts = Mapping[str, str | None]


class Arena:
    """One project in one sandbox with small limits; everything under `folder` must stay unchanged."""

    def __init__(self, folder: Path, sandbox: str) -> None:
        self.folder = folder
        self.project, self.beside = folder / "project", folder / "beside"
        for name, text in FILES.items():
            target = self.project / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        self.beside.mkdir()
        (self.beside / "theirs.txt").write_text("theirs\n")
        (self.project / "outside").symlink_to("../beside")
        settings = RuleSettings(time_limit_s=TIME_LIMIT_S)
        self.runner = open_runner(self.project, Store(folder / "store"), settings=settings, sandbox=sandbox)
        self.runner = replace(
            self.runner,
            limits=replace(
                self.runner.limits,
                memory_bytes=768 * MIB,
                processes=40,
                output_bytes=2 * MIB,
                file_bytes=16 * MIB,
                disk_bytes=32 * MIB,
            ),
            # Grades would add the references that they measure to the store.
            reference_store=MemoryRecords(),
        )
        self.isolates = sandbox != "process"
        self.before = listing(folder)

    def patch(self, changes: Texts, *, on_weakened: bool = False) -> Patch:
        """Return the diff from the original, or from the state that a solver sees, to these texts."""
        state = self.runner.original
        if on_weakened:
            state = state.apply(self.patch(BUG)).apply(self.patch(WEAK))
        new = {p: None if t is None else FileEntry(t.encode(), 0o100644) for p, t in changes.items()}
        return make_patch({p: (state.entry(p), entry) for p, entry in new.items()})

    def artifact(
        self,
        *,
        first: str = "",
        script: str | None = None,
        parser: str | None = None,
        bug: Texts | Patch = BUG,
        weaken: Texts | Patch = WEAK,
        files: tuple[str, ...] = TESTS,
    ) -> BugArtifact:
        """Return an honest artifact except for the given parts; `first` runs before the honest script."""
        honest = default_script(TESTS, options=()).decode()
        text = script if script is not None else honest
        marked = f"#!/usr/bin/env bash\nexport HOSTILE={MARKER}\n{first}\n{text}"
        return BugArtifact(
            script=marked.encode(),
            test_files=files,
            parser=default_parser() if parser is None else parser.encode(),
            bug=bug if isinstance(bug, Patch) else self.patch(bug),
            weaken=weaken if isinstance(weaken, Patch) else self.patch(weaken),
        )

    def judge(self, **parts: object) -> Verdict:
        """Validate the artifact made of these parts by the whole rule."""
        return Validation(self.artifact(**parts), self.runner.scoped()).verdict()  # type: ignore[arg-type]

    def step(self, name: str, *, time_limit_s: float = TIME_LIMIT_S, **parts: object) -> CheckResult:
        """Validate up to one step, and return its result."""
        runner = self.runner.scoped()
        runner = replace(runner, settings=RuleSettings(time_limit_s=time_limit_s))
        return Validation(self.artifact(**parts), runner).result(name)  # type: ignore[arg-type]

    def check(self, name: str, **parts: object) -> Finding:
        """Run one check alone; only for checks that need no run."""
        return dict(SEVEN)[name](ValidationContext(self.artifact(**parts), self.runner.scoped()))  # type: ignore[arg-type]

    def printed(self, script: str) -> bytes:
        """Return the output of a script on the original."""
        run, _ = self.runner.scoped().script(self.runner.original, self.artifact(script=script))
        return run.output

    def grade(self, patch: Texts | Patch, *, full: bool = False) -> Grade:
        """Grade a solver's patch of the honest artifact."""
        chosen = patch if isinstance(patch, Patch) else self.patch(patch, on_weakened=True)
        return grade_patch(
            self.runner.scoped(),
            self.artifact(),
            chosen,
            fail_to_pass=FAIL_TO_PASS,
            pass_to_pass=PASS_TO_PASS,
            like_s=0.5,
            full=full,
        )


def listing(folder: Path) -> dict[str, tuple[int, str]]:
    """Return the mode and the content hash (or link target) of everything below a folder."""
    entries = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        if path.is_symlink():
            content = os.readlink(path)
        else:
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        entries[str(path.relative_to(folder))] = (info.st_mode, content)
    return entries


def marked_processes() -> list[str]:
    """Return the processes with the marker in their arguments or environment."""
    processes = []
    for path in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                text = (path / name).read_bytes()
            except OSError:
                continue
            if MARKER.encode() in text:
                processes.append(f"{path.name}: {text[:200]!r}")
    return processes


@pytest.fixture(scope="session")
def open_arena(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Arena]:
    """Open one arena for each sandbox; its runs on the original are shared."""
    opened: dict[str, Arena] = {}

    def get(sandbox: str) -> Arena:
        if sandbox not in opened:
            opened[sandbox] = Arena(tmp_path_factory.mktemp("arena"), sandbox)
        return opened[sandbox]

    return get


def sockets() -> set[str]:
    """Return the inodes of sockets that others could reach: listening ones, and abstract names."""
    inodes = set()
    for name in ("tcp", "tcp6", "udp", "udp6"):
        with suppress(OSError):
            rows = [line.split() for line in Path("/proc/net", name).read_text().splitlines()[1:]]
            inodes |= {row[9] for row in rows if row[3] in ("0A", "07")}
    with suppress(OSError):
        rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
        inodes |= {row[6] for row in rows if row[-1].startswith("@")}
    return inodes


def holders(inodes: set[str]) -> dict[int, str]:
    """Return the names of the processes that hold these sockets, by process id."""
    names_by_pid = {}
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for path in Path("/proc").glob("[0-9]*") if inodes else ():
        with suppress(OSError):
            if wanted & {os.readlink(p) for p in (path / "fd").iterdir()}:
                names_by_pid[int(path.name)] = (path / "comm").read_text().strip()
    return names_by_pid


def is_unrelated(pid: int, before: set[int]) -> bool:
    """Return whether a process existed before, or was started by one that did, or by a container engine.

    Tests that run in parallel start such processes, and use the engine.
    """
    while pid > 1 and pid != os.getpid():
        try:
            if pid in before or Path(f"/proc/{pid}/comm").read_text().startswith(ENGINE):
                return True
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return True
    return False


def uses_of_folder(folder: Path) -> list[str]:
    """Return the processes that still use a folder, and the mounts in it."""
    uses = [line for line in Path("/proc/self/mounts").read_text().splitlines() if f"{folder}/" in line]
    for path in Path("/proc").glob("[0-9]*"):
        for name in ("cwd", "root", "exe"):
            with suppress(OSError):
                if os.readlink(path / name).startswith(f"{folder}/"):
                    uses.append(f"{path.name}: {name}")
    return uses


@pytest.fixture
def clean_machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give sandboxes a separate folder, and assert that after the test no file, process, mount or socket is left."""
    # Not below `tmp_path`: in the process sandbox, code under attack sees this path, which must not look like a test's.
    sandbox_tmp = tmp_path_factory.mktemp("sandboxes")
    etc()  # created once per process
    monkeypatch.setattr(tempfile, "tempdir", str(sandbox_tmp))
    before = sockets(), {int(p.name) for p in Path("/proc").glob("[0-9]*")}
    yield
    assert [p.name for p in sandbox_tmp.iterdir()] == [], "folders of sandboxes are left"

    def leftovers() -> list[object]:
        listening = holders(sockets() - before[0])
        own_listeners = [(p, name) for p, name in listening.items() if not is_unrelated(p, before[1])]
        return [*marked_processes(), *uses_of_folder(sandbox_tmp), *own_listeners]

    deadline, remaining = time.monotonic() + 2, leftovers()
    while remaining and time.monotonic() < deadline:
        time.sleep(0.05)
        remaining = leftovers()
    if remaining:
        time.sleep(0.3)
        remaining = [x for x in leftovers() if x in remaining]
    assert remaining == [], "processes, mounts or sockets of the attack are left"
    planted = [str(p) for folder in SHARED_FOLDERS if folder.is_dir() for p in folder.glob(f"*{MARKER}*")]
    assert planted == [], "files of the attack are left"


def _guarded(arena: Arena) -> Iterator[Arena]:
    yield arena
    assert listing(arena.folder) == arena.before, "the project, its neighbour or the store was changed"


@pytest.fixture(params=EACH)
def arena(request: pytest.FixtureRequest, clean_machine: None, open_arena: Callable[[str], Arena]) -> Iterator[Arena]:
    """Each sandbox."""
    yield from _guarded(open_arena(request.param))


@pytest.fixture
def chosen(request: pytest.FixtureRequest, clean_machine: None, open_arena: Callable[[str], Arena]) -> Iterator[Arena]:
    """The sandbox that a file of attacks is given to."""
    yield from _guarded(open_arena(request.param))


@pytest.fixture(params=ISOLATE)
def isolated(
    request: pytest.FixtureRequest, clean_machine: None, open_arena: Callable[[str], Arena]
) -> Iterator[Arena]:
    """Each sandbox that isolates."""
    yield from _guarded(open_arena(request.param))


@pytest.fixture
def copied(clean_machine: None, open_arena: Callable[[str], Arena]) -> Iterator[Arena]:
    """The sandbox that copies and limits; sufficient if the attack does not target the machine."""
    yield from _guarded(open_arena("process"))


@pytest.fixture(scope="session")
def marker() -> str:
    """A string that identifies what an attack leaves behind."""
    return MARKER


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    """The project's files by path."""
    return dict(FILES)


@pytest.fixture(scope="session")
def weak() -> dict[str, str]:
    """The honest weakening."""
    return dict(WEAK)
