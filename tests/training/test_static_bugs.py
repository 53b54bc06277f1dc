"""`ssr static-bugs`: rows of bugs that operators make, without running a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.injectors.lm_prompt import bug_question
from harness.solvers.writer.prompt import lines_of
from harness.solvers.writer.regions import Region
from harness.training.language.left_out import LeftOut
from harness.training.language.plan import Method
from harness.training.language.rows import read_rows
from harness.training.search.examples import Bug
from harness.training.search.sources import SourceFolder
from harness.training.writer import row_file, static_rows

CODE = '''\
def clamp(x, low, high):
    """Return x, between low and high."""
    if x < low:
        return low
    if x > high:
        return high
    return x
'''


@pytest.fixture
def projects(tmp_path: Path) -> list[str]:
    """Return two projects with the same code under other names."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        (folder / "code.py").write_text(CODE.replace("clamp", f"clamp_{folder.name}"))
    return [str(folder) for folder in folders]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_row_asks_for_the_original_lines(projects: list[str], tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    assert main(["static-bugs", *projects, "--out", str(out)]) == ExitCode.DONE
    for row in rows(out):
        asked, answer = (message["content"] for message in row["messages"])
        original = lines_of(answer)
        assert original is not None
        function = asked.partition("\n\n")[2] + "\n"
        begin, _, rest = function.partition("<<<\n")
        _, _, end = rest.partition(">>>\n")
        assert f"{begin}{original}{end}" == CODE.replace("clamp", f"clamp_{row['project']}")
        assert (row["path"], row["function"]) == ("code.py", f"clamp_{row['project']}")
        assert row["operator"]
    assert {row["project"] for row in rows(out)} == {"one", "two"}
    assert len({row["operator"] for row in rows(out)}) > 3
    assert len(read_rows([out], Method.SFT, LeftOut(), token_ids=True)) == len(rows(out))


def test_the_rows_of_an_injector_show_the_original_and_ask_for_the_bug(projects: list[str], tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    assert main(["static-bugs", *projects, "--out", str(out), "--role", "injector"]) == ExitCode.DONE
    tasks = set()
    for row in rows(out):
        asked, answer = (message["content"] for message in row["messages"])
        task, _, function = asked.partition("\n\n")
        tasks.add(task)
        code = CODE.replace("clamp", f"clamp_{row['project']}")
        assert function.replace("<<<\n", "").replace(">>>\n", "").removesuffix(">>>").strip() == code.strip()
        lines = lines_of(answer)
        assert lines is not None
        assert f"<<<\n{lines}>>>" not in function
    assert tasks == {bug_question(Region("", "", "", 1))[0]["content"].partition("\n\n")[0]}
    assert len(rows(out)) > 3


def test_the_same_seed_gives_the_same_rows_with_any_number_of_jobs(
    projects: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for number, options in enumerate((["-n", "1"], ["-n", "2"], ["--seed", "1"])):
        out = tmp_path / f"{number}.jsonl"
        limits = ["--count", "5", "--per-project", "4"]
        assert main(["static-bugs", *projects, "--out", str(out), *limits, *options, "--json"]) == ExitCode.DONE
        report = json.loads(capsys.readouterr().out)
        assert report["projects"] == {"one": 3, "two": 2}
        assert report["rows"] == sum(report["operators"].values()) == 5
        assert report["made"] == 8
        texts.append(out.read_text())
    assert texts[0] == texts[1] != texts[2]


def test_a_run_that_was_ended_continues_with_the_next_project(
    projects: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [SourceFolder(Path(project)) for project in projects]
    settings = row_file.RowSettings("mutation", 4, 0, 0, 1)

    def run_first(calls: Any, jobs: int, finished: Any) -> None:
        source, call = next(iter(calls.items()))
        finished(source, call())
        raise KeyboardInterrupt

    out = tmp_path / "rows.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(row_file, "run_calls", run_first)
        with pytest.raises(KeyboardInterrupt):
            row_file.write_row_file(sources, out, settings, lambda _: None)
    assert not out.exists()
    report = row_file.write_row_file(sources, out, settings, lambda _: None)
    assert (report.rows, report.made) == (8, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "rows.jsonl", "two"]


def test_projects_of_evaluation_sets_and_excluded_ones_are_left_out(
    projects: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(projects[0]).rename(tmp_path / "flask")
    out = tmp_path / "rows.jsonl"
    sources = [str(tmp_path / "flask"), projects[1]]
    assert main(["static-bugs", *sources, "--out", str(out)]) == ExitCode.DONE
    assert {row["project"] for row in rows(out)} == {"two"}
    assert main(["static-bugs", *sources, "--out", str(out), "--exclude", "two"]) == ExitCode.USAGE


@pytest.mark.parametrize("arguments", [["--out", "rows.txt"], ["--out", "folder.jsonl"], ["--injector", "none"]])
def test_a_mistake_is_one_line(
    arguments: list[str], projects: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("folder.jsonl").mkdir()
    assert main(["static-bugs", *projects, "--out", "rows.jsonl", *arguments]) == ExitCode.USAGE
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("original", "buggy", "count"),
    [
        (CODE, CODE.replace("x < low", "x > low"), 1),
        (CODE, CODE.replace("    if x < low:\n        return low\n", ""), 1),
        (CODE, CODE.replace("x < low", "x > low").replace("return x", "return 1"), 0),
        (CODE.replace("return x", "y = 1\n" * 6 + "    return x"), CODE[: CODE.index("    if")] + "    pass\n", 0),
        (CODE + "x = 1\n", CODE.replace("x < low", "x > low") + "x = 2\n", 0),
        (CODE.replace("x < low", "x < low or '\\n>>>\\n'"), CODE, 1),
        (CODE.replace('"""Return', '"""\n>>>\nReturn'), CODE.replace('"""Return', '"""\n>>>\nReturn').replace("<", ">"), 0),
        (CODE.replace("\n", "\r\n"), CODE.replace("\n", "\r\n").replace("<", ">"), 0),
    ],
)  # fmt: skip
def test_only_bugs_within_a_region_give_a_row(original: str, buggy: str, count: int) -> None:
    bug = Bug("operator", "a.py", "clamp", original.encode(), buggy.encode())
    assert len(list(static_rows.region_bugs(iter([bug])))) == count


def test_two_runs_do_not_write_one_file(projects: list[str], tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    with row_file._owned(tmp_path / "rows.jsonl.parts", out):
        assert main(["static-bugs", *projects, "--out", str(out)]) == ExitCode.USAGE
    assert not out.exists()
    assert main(["static-bugs", *projects, "--out", str(out)]) == ExitCode.DONE
