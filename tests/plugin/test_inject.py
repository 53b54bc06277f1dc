"""Test `pytest --ssr-inject` as users run it, in a separate process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest
from plain import plain_python

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from pytest_ssr.plugin.inject import InjectPlugin
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.suggestions.suggest import Suggester

WITHOUT = ("-p", "no:anyio", "-p", "no:hypothesispytest")
"""Plugins that are installed only for the tests of this package, and take half of the start-up time."""


def run(
    project: Path, *arguments: str, timeout: float = 300, python: Path | None = None
) -> subprocess.CompletedProcess[str]:
    inner = f"--ssr-python={python or plain_python()}"
    command = [sys.executable, "-m", "pytest", *WITHOUT, "--ssr-sandbox", "process", inner, *arguments]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV"))}
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=timeout, check=False)


def artifacts(project: Path, store: str = ".ssr") -> dict[str, bytes]:
    top = project / store / "artifacts"
    return {p.relative_to(top).as_posix(): p.read_bytes() for p in sorted(top.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def injected(
    tmp_path_factory: pytest.TempPathFactory, calculator: dict[str, str]
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The small project with two artifacts in its store, and the completed process."""
    project = tmp_path_factory.mktemp("made") / "project"
    for name, text in calculator.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    reports = ("--junitxml", "../out.xml", "--ssr-json", "../results/out.json", "--ssr-html", "report")
    return project, run(
        project, "--ssr-inject", "--ssr-count", "2", "--ssr-diffs", *reports, "--ssr-sarif", "out.sarif"
    )


def test_valid_artifacts_and_survivors_are_shown(
    injected: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    project, done = injected
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 of 7 tests pass" in done.stdout
    assert "valid artifacts: 2" in done.stdout
    assert "2 of 2 valid" in done.stdout
    assert "2 valid" in done.stdout.splitlines()[-2]
    files = artifacts(project)
    assert len({name.split("/")[0] for name in files}) == 2
    assert {name.split("/")[1] for name in files} == {
        "test_script.sh",
        "test_files.txt",
        "test_parser.py",
        "bug_inject.diff",
        "test_weaken.diff",
        "artifact.json",
    }
    assert (project / ".ssr" / ".gitignore").read_text() == "*\n"
    cases = list(ET.parse(project.parent / "out.xml").iter("testcase"))
    assert {case.get("classname", "").split(".")[0] for case in cases} == {"calc"}
    statuses = [p.get("value") for p in ET.parse(project.parent / "out.xml").iter("property")]
    assert statuses.count("valid") == 2
    assert json.loads((project / "out.sarif").read_text())["version"] == "2.1.0"
    assert "<h1>" in (project / "report" / "index.html").read_text()
    record = json.loads(next((project / ".ssr" / "campaigns").iterdir()).read_text())
    assert record["files"] == ["calc.py"]
    assert "ssr: trying changes, one after another, until 2 bugs are proven" in done.stdout
    assert "collected" not in done.stdout


def test_the_results_are_written_as_json(injected: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    project, done = injected
    content = json.loads((project.parent / "results/out.json").read_text())
    assert [a["id"] for a in content["artifacts"]] == content["valid"]
    assert {a["id"] for a in content["artifacts"]} == {name.split("/")[0] for name in artifacts(project)}
    assert "results/out.json\n" in done.stdout
    score = content["score"]
    assert f"{score['tried']} change" in done.stdout
    assert 0 <= score["low"] <= score["rate"] <= score["high"] <= 1
    assert content["skipped"] == {"function": 0, "class": 0, "line": 0}
    assert content["run"]["seconds"] > 0
    assert {int(index) for index in content["run"]["attempts"]} == {a["index"] for a in content["attempts"]}
    tried = sum(a["status"] not in ("timed-out", "not-exercised", "undecided") for a in content["attempts"])
    assert (content["ending"]["tried"], content["ending"]["planned"], content["ending"]["cut"]) == (tried, None, None)
    assert done.stdout.splitlines()[-1] == f"ssr: {tried} changes tried, 2 of 2 bugs proven"
    assert {s["index"] for s in content["survivors"]} == {
        a["index"] for a in content["attempts"] if a["status"] == "survived"
    }
    assert sorted(p.name for p in (project.parent / "results").iterdir()) == ["out.json"]


@pytest.mark.long
def test_two_workers_make_the_same_artifacts(project: Path, injected: tuple[Path, object]) -> None:
    pytest.importorskip("xdist")
    done = run(project, "--ssr-inject", "--ssr-count", "2", "-n", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "valid artifacts: 2" in done.stdout
    assert artifacts(project) == artifacts(injected[0]) != {}


@pytest.mark.long
def test_workers_draw_only_needed_candidates_unless_items_are_selected_by_name(project: Path) -> None:
    pytest.importorskip("xdist")
    (project / "conftest.py").write_text(
        "import os, pytest\n\nhanded_out = []\n\n\n"
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_runtest_protocol(item):\n"
        "    handed_out.append(item)\n"
        "    return (yield)\n\n\n"
        "@pytest.hookimpl(trylast=True)\n"
        "def pytest_sessionfinish(session):\n"
        "    plugin = session.config.pluginmanager.get_plugin('ssr-inject')\n"
        "    if plugin is not None and 'PYTEST_XDIST_WORKER' in os.environ:\n"
        "        with open('../drawn.txt', 'a') as out:\n"
        "            print(len(plugin.campaign._drawn), len(handed_out), file=out)\n"
    )
    wanted = ("--ssr-inject", "--ssr-count", "1", "-n", "2", "-v")
    plain = run(project, *wanted, "--junitxml", "../out.xml")
    assert plain.returncode == 0, plain.stdout + plain.stderr
    assert "ssr-inject::00000::screening" in plain.stdout
    names = [case.get("classname") for case in ET.parse(project.parent / "out.xml").iter("testcase")]
    assert any(re.fullmatch(r"calc\.\w+", name or "") for name in names), names
    lines = (project.parent / "drawn.txt").read_text().splitlines()
    drawn, handed_out = zip(*(map(int, line.split()) for line in lines), strict=True)
    assert len(drawn) == 2
    assert max(drawn) < 10
    assert sum(handed_out) < 150, "of 780 items"
    named = run(project, *wanted[:3], "-k", "calc.py", "--collect-only", "-q")
    assert re.search(r"ssr-inject::00000-[a-z-]+@calc.py:\d+:\w+::screening", named.stdout), named.stdout


@pytest.mark.long
@pytest.mark.any_pytest
def test_workers_end_when_there_are_no_more_candidates(project: Path) -> None:
    pytest.importorskip("xdist")
    (project / "calc.py").write_text("def add(a, b):\n    return a + b\n\n\ndef same(a):\n    return a\n")
    (project / "tests/test_calc.py").write_text(
        "import calc\n\n\ndef test_add():\n    assert calc.add(1, 2) == 3\n\n\ndef test_same():\n    assert calc.same(1) == 1\n"
    )
    done = run(project, "--ssr-inject", "--ssr-count", "90", "--ssr-injector", "removal", "-n", "2")
    alone = run(project, "--ssr-inject", "--ssr-count", "90", "--ssr-injector", "removal", "--ssr-store", "alone")
    assert done.returncode == alone.returncode == 1, done.stdout + done.stderr
    assert "of 90 reached: try another" in done.stdout
    assert artifacts(project, "alone") == artifacts(project) != {}


def test_candidates_after_enough_valid_ones_are_skipped_without_reading_the_store(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    queried: list[int] = []
    statuses = {0: CandidateStatus.VALID, 1: CandidateStatus.SURVIVED, 2: CandidateStatus.VALID}

    class Known:
        def stored(self, index: int) -> object:
            queried.append(index)
            return SimpleNamespace(status=statuses[index]) if index in statuses else None

    plugin = InjectPlugin(pytester.parseconfig("--ssr-inject", "--ssr-count", "2"))
    monkeypatch.setattr(plugin, "campaign", Known())
    assert not plugin.enough_before(2)
    assert plugin.enough_before(3)
    queries = len(queried)
    assert all(plugin.enough_before(index) for index in range(3, 1000))
    assert len(queried) == queries
    assert not plugin.enough_before(2)


def test_only_reported_results_make_candidates_unnecessary(pytester: pytest.Pytester) -> None:
    plugin = InjectPlugin(pytester.parseconfig("--ssr-inject", "--ssr-count", "2"))
    plugin.results = {i: SimpleNamespace(status=CandidateStatus.VALID) for i in (7, 2)}  # type: ignore[misc]
    assert plugin.first_unneeded() == 8
    plugin.results[4] = SimpleNamespace(status=CandidateStatus.VALID)  # type: ignore[assignment]
    assert plugin.first_unneeded() == 5
    plugin.results = {
        2: SimpleNamespace(status=CandidateStatus.VALID),
        3: SimpleNamespace(status=CandidateStatus.REJECTED),
    }  # type: ignore[dict-item]
    assert plugin.first_unneeded() is None


def test_with_a_gate_tried_changes_count(pytester: pytest.Pytester) -> None:
    plugin = InjectPlugin(pytester.parseconfig("--ssr-inject", "--ssr-fail-under=50", "--ssr-changes", "2"))
    plugin.results = {
        1: SimpleNamespace(status=CandidateStatus.TIMED_OUT),
        3: SimpleNamespace(status=CandidateStatus.SURVIVED),
    }  # type: ignore[dict-item]
    assert plugin.first_unneeded() is None
    plugin.results[5] = SimpleNamespace(status=CandidateStatus.REJECTED)  # type: ignore[assignment]
    assert plugin.first_unneeded() == 6
    assert plugin.enough_from is None


@pytest.mark.any_pytest
def test_survivors_are_listed_with_their_diff_and_too_few_artifacts_exit_with_1(project: Path) -> None:
    done = run(project, "--ssr-inject", "--ssr-count", "2", "--ssr-diffs", "-k", "unchecked")
    assert done.returncode == 1, done.stdout
    assert "what the tests missed" in done.stdout
    assert re.search(r"calc.py:\d+ unchecked  \d+ of \d+: ", done.stdout)
    assert "-    if a > 3:" in done.stdout
    assert "of 2 reached: try another --ssr-seed or --ssr-injector" in done.stdout


@pytest.mark.long
def test_validate_collects_seven_items_and_fails_the_check_that_fails(
    project: Path, injected: tuple[Path, object]
) -> None:
    good = project / "good"
    shutil.copytree(next((injected[0] / ".ssr" / "artifacts").iterdir()), good)
    (good / "artifact.json").unlink()
    done = run(project, "--ssr-validate", "good", "-v")
    assert done.returncode == 0, done.stdout
    assert "7 passed" in done.stdout
    assert "good/bug_inject.diff::inverse-mutation PASSED" in done.stdout
    hostile = shutil.copytree(good, project / "x\x1b[31mred")
    shown = run(project, "--ssr-validate", hostile.name, "-v", "-k", "test-files")
    shutil.rmtree(hostile)
    assert "red/bug_inject.diff::test-files PASSED" in shown.stdout
    assert "\x1b" not in shown.stdout + shown.stderr
    script = good / "test_script.sh"
    script.write_text("#!/bin/sh\nexit 0\n")
    bad = run(project, "--ssr-validate", "good")
    assert bad.returncode == 1
    assert "no test in the script's output" in bad.stdout
    assert "1 failed, 1 passed, 5 skipped" in bad.stdout
    script.unlink()
    broken = run(project, "--ssr-validate", "good")
    assert "test_script.sh missing; an artifact needs" in broken.stdout
    assert "Traceback" not in broken.stdout


@pytest.mark.long
@pytest.mark.any_pytest
def test_a_killed_run_resumes(project: Path, injected: tuple[Path, object]) -> None:
    arguments = ("--ssr-inject", "--ssr-count", "2")
    command = [sys.executable, "-m", "pytest", *WITHOUT, "--ssr-sandbox", "process"]
    command += [f"--ssr-python={plain_python()}", *arguments]
    process = subprocess.Popen(command, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((project / ".ssr").glob("attempts/*/*.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    finished = {p: p.stat().st_mtime_ns for p in (project / ".ssr").glob("attempts/*/*.json")}
    for artifact in (project / ".ssr" / "artifacts").iterdir():
        assert len(list(artifact.iterdir())) == 6
    done = run(project, *arguments)
    assert done.returncode == 0, done.stdout
    assert finished
    assert all(p.stat().st_mtime_ns == at for p, at in finished.items())
    assert artifacts(project) == artifacts(injected[0]) != {}
    assert not list((project / ".ssr" / "tmp").iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ssr-inject", "--ssr-count", "0"], "--ssr-count must be at least 1, not 0"),
        (["--ssr-inject", "--ssr-injector", "nonsense"], "there is no injector 'nonsense'; choose among"),
        (["--ssr-inject", "--ssr-sandbox", "nonsense"], "there is no sandbox 'nonsense'; choose among auto"),
        (["--ssr-inject", "--ssr-min-passing-tests", "100"], "min_passing_tests is 100, but 7 tests pass"),
        (["--ssr-inject", "--ssr-source", "tests"], "tests: these are tests; bugs go into code: calc.py"),
        (["--ssr-inject", "--ssr-python", "/nowhere/python"], "there is no interpreter at /nowhere/python"),
        (["--ssr-inject", "--ssr-source", "nowhere"], "nowhere: the tests import no code file there"),
        (["--ssr-inject", "--ssr-injector", "history"], "the history strategy needs git history"),
        (["--ssr-validate", "nowhere"], "nowhere does not exist; name an artifact's directory"),
        (["--ssr-inject", "--ssr-validate", "."], "--ssr-inject and --ssr-validate are 2 jobs; give one of them"),
    ],
)
def test_a_usage_error_is_one_message(project: Path, arguments: list[str], message: str) -> None:
    done = run(project, *arguments)
    assert done.returncode == 4, done.stdout + done.stderr
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_an_artifacts_parser_is_never_imported(project: Path) -> None:
    artifact = project / "tests" / "made"
    artifact.mkdir()
    (artifact / "bug_inject.diff").write_text("")
    (artifact / "test_parser.py").write_text("raise SystemExit('imported')\n")
    for arguments in ([], ["tests/made/test_parser.py"]):
        done = run(project, *arguments, "-p", "no:xdist")
        assert "imported" not in done.stdout.replace("is not imported", "")
        assert "belongs to a bug artifact and is not imported" in done.stdout
    assert run(project).returncode == 0


@pytest.mark.any_pytest
def test_an_interpreter_of_another_project_does_not_change_the_project(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "bin").mkdir(parents=True)
    (other / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (other / "test_other.py").write_text("def test_other():\n    pass\n")
    python = other / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    done = run(project, "--ssr-inject", "--ssr-count", "1", "--ssr-python", str(python))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 of 7 tests" in done.stdout
    assert artifacts(project)


@pytest.mark.any_pytest
@pytest.mark.parametrize("source", ["option", "variable", "ini"])
def test_a_relative_interpreter_is_resolved_from_its_source(
    project: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    folder = project / "tests" if source == "option" else project
    monkeypatch.chdir(folder)
    arguments = ["--ssr-python=env/bin/python"] if source == "option" else []
    if source == "variable":
        monkeypatch.setenv("SSR_PYTHON", "env/bin/python")
    if source == "ini":
        (project / "pytest.ini").write_text("[pytest]\nssr_python = env/bin/python\n")
    command = [sys.executable, "-m", "pytest", *WITHOUT, "--ssr-sandbox=process", "--ssr-inject", "--ssr-count=1"]
    command += [*arguments, *(["-n", "1"] if source == "option" else []), "--collect-only", "-q"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV"))}
    # For the ini file run in a subdirectory: the path is relative to the ini file, not to the current directory.
    here = project / "tests" if source == "ini" else folder
    refused = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=False)
    assert f"there is no interpreter at {folder}/env/bin/python; name one" in refused.stdout + refused.stderr
    (folder / "env").symlink_to(plain_python().parent.parent)
    done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_candidates_can_be_listed_without_a_run(project: Path) -> None:
    done = run(project, "--ssr-inject", "--ssr-count", "1", "--collect-only", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "::bug-validity" in done.stdout
    assert "valid artifacts" not in done.stdout
    assert artifacts(project) == {}


@pytest.mark.long
@pytest.mark.any_pytest
def test_each_hunk_of_a_combination_is_needed(project: Path) -> None:
    done = run(project, "--ssr-inject", "--ssr-count", "1", "--ssr-injector", "combination")
    assert done.returncode == 0, done.stdout + done.stderr
    stored = project / ".ssr" / "artifacts"
    arguments = ["validate", str(stored), "--per-hunk", "--sandbox", "process", "--python", str(plain_python())]
    again = subprocess.run(
        [sys.executable, "-m", "harness.cli", *arguments], cwd=project, capture_output=True, text=True
    )
    assert len(list(stored.iterdir())) == 1
    assert again.returncode == 0, again.stdout + again.stderr


CHECKED = "def test_scale():\n    assert calc.scale(3) == 7\n"
UNCHECKED = "def test_scale():\n    calc.scale(3)\n"


@pytest.mark.long
@pytest.mark.parametrize(("tests", "status", "line"), [(CHECKED, 0, "reaches 75 %"), (UNCHECKED, 1, "is under 75 %")])
def test_a_pull_request_passes_the_gate_only_with_tests(tmp_path: Path, tests: str, status: int, line: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    git = ("git", "-C", str(project), "-c", "user.name=x", "-c", "user.email=x@y")
    subprocess.run([*git, "init", "-q"], check=True)
    for code, checks in (
        ("def old(a):\n    return a + 1\n", "import calc\n\n\ndef test_old():\n    calc.old(1)\n"),
        ("\n\ndef scale(a):\n    return a * 2 + 1\n", "\n\n" + tests),
    ):
        for name, text in (("calc.py", code), ("test_calc.py", checks)):
            with (project / name).open("a") as file:
                file.write(text)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", "x"], check=True)
    # The function has fewer than 20 changes: they decide because they are all.
    gate = ("--ssr-inject", "--ssr-fail-under", "75", "--ssr-diff", "HEAD~1")
    done = run(project, *gate, "--ssr-json", "out.json")
    assert done.returncode == status, done.stdout + done.stderr
    assert f"the score {line}" in done.stdout
    content = json.loads((project / "out.json").read_text())
    assert content["score"]["gate"] == ("under" if status else "passed")
    assert content["score"]["complete"]
    assert {a["scope"] for a in content["attempts"]} == {"scale"}
    assert "combination" not in {a["strategy"] for a in content["attempts"]}
    # A gate judges, and proves nothing, unless bugs are wanted, too.
    assert {a["status"] for a in content["attempts"]} == ({"survived"} if status else {"noticed"})
    assert artifacts(project) == {}
    assert "valid artifacts" not in done.stdout
    review = run(project, "--ssr-inject", "--ssr-diff", "HEAD~1", "--ssr-json", "out.json")
    assert review.returncode == 0, review.stdout + review.stderr
    content = json.loads((project / "out.json").read_text())
    remarks = content["review"]["remarks"]
    assert content["review"]["complete"]
    assert bool(remarks) is any(s["equivalence"] is None for s in content["survivors"])
    assert {r["function"] for r in remarks} == ({"scale"} if remarks else set())
    assert remarks or not status, "nothing checks the new function"
    assert all(r["id"] in review.stdout for r in remarks)
    assert artifacts(project) == {}
    proving = run(project, *gate, "--ssr-count", "1")
    assert proving.returncode == status
    assert bool(artifacts(project)) is (not status)
    # Without changes, the results of the run before do not stay.
    reports = ("--ssr-json", "out.json", "--ssr-sarif", "out.sarif", "--junitxml", "out.xml")
    assert run(project, "--ssr-inject", "--ssr-diff", "HEAD", *reports).returncode == 0
    assert json.loads((project / "out.sarif").read_text())["runs"][0]["results"] == []
    assert 'tests="0"' in (project / "out.xml").read_text()
    content = json.loads((project / "out.json").read_text())
    assert content["valid"] == []
    assert content["nothing_to_do"]


WEAK = {
    "shop.py": "def large(x):\n    return x > 7\n\n\ndef small(x):\n    return x < 3\n",
    "test_shop.py": "import shop\n\n\ndef test_large():\n    assert not shop.large(0)\n\n\n"
    "def test_small():\n    assert shop.small(0)\n\n\ndef test_nothing():\n    pass\n",
}
INTERRUPTING = """\
from pytest_ssr.suggestions.suggest import Suggester


def suggest(self, survivor, changed):
    raise KeyboardInterrupt


Suggester.suggest = suggest
"""


@pytest.mark.long
def test_suggested_tests_are_shown_written_and_kept_at_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name, text in WEAK.items():
        (project / name).write_text(text)
    common = ("--ssr-inject", "--ssr-fail-under", "0", "--ssr-changes", "6", "--ssr-json", "../out.json")
    done = run(project, *common, "--ssr-suggest", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "suggested tests: 1 for 1 survivor" in done.stdout
    (first,) = json.loads((tmp_path / "out.json").read_text())["suggested_tests"]
    for line in filter(None, first["test"].splitlines()):
        assert line in done.stdout
    # The first one is stored; the search for the second one is interrupted.
    (tmp_path / "interrupting_search.py").write_text(INTERRUPTING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run(project, *common, "--ssr-suggest", "2", "-p", "interrupting_search")
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout + done.stderr
    assert "suggested tests: 1 for 1 survivor" in done.stdout
    assert "interrupted; what is finished is kept" in done.stdout
    assert json.loads((tmp_path / "out.json").read_text())["suggested_tests"] == [first]

    def interrupted(self: Suggester, *_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Suggester, "suggest", interrupted)
    command = ["inject", str(project), "--fail-under", "0", "--changes", "6", "--suggest", "2", "--sandbox", "process"]
    assert main([*command, "--python", str(plain_python())]) == ExitCode.BROKEN
    captured = capsys.readouterr()
    assert "suggested tests: 1 for 1 survivor" in captured.out
    assert "interrupted; what is finished is kept" in captured.err
