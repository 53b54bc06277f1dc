"""Five machines do the work of one: `ssr inject --shard`, `ssr validate --shard` and `ssr merge`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python

from harness.cli.exit_code import ExitCode
from harness.cli.main import main

SANDBOX = ("--sandbox", "process", "--python", str(plain_python()))
OF = 5
CHANGES = 12


def inject(project: Path, store: Path, shard: str, *options: str) -> int:
    command = ["inject", str(project), "--shard", shard, "--changes", str(CHANGES), "--store", str(store), *SANDBOX]
    return main([*command, *options])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, calculator: dict[str, str]) -> Path:
    """Return a folder with the small project and the stores of five shards, `1` to `5`."""
    top = tmp_path_factory.mktemp("shards")
    for name, text in calculator.items():
        (top / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (top / "project" / name).write_text(text)
    for number in range(1, OF + 1):
        assert inject(top / "project", top / str(number), f"{number}/{OF}") == ExitCode.DONE
    return top


@pytest.fixture
def stores(folder: Path, tmp_path: Path) -> list[Path]:
    """Return copies of the stores of the five shards."""
    return [shutil.copytree(folder / str(n), tmp_path / str(n), symlinks=True) for n in range(1, OF + 1)]


def merged(stores: list[Path], into: Path, *options: str) -> int:
    return main(["merge", *map(str, stores), "--into", str(into), *options])


def remarks(
    capsys: pytest.CaptureFixture[str], stores: list[Path], into: Path, *, code: ExitCode = ExitCode.NO
) -> list[dict[str, Any]]:
    """Return the remarks of a merge that writes nothing."""
    capsys.readouterr()
    assert merged(stores, into, "--json") == code
    assert not into.exists()
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["remarks"]
    return found


def records(store: Path, kind: str) -> dict[str, dict[str, Any]]:
    """Return the records of a kind, without what a run took."""
    found = {p.relative_to(store).as_posix(): json.loads(p.read_text()) for p in (store / kind).rglob("*.json")}
    return {
        name: {key: data[key] for key in data.keys() - {"seconds", "runs", "forks"}} for name, data in found.items()
    }


def files(store: Path, kind: str) -> dict[str, bytes]:
    return {p.relative_to(store).as_posix(): p.read_bytes() for p in (store / kind).rglob("*") if p.is_file()}


@pytest.mark.long
def test_the_joined_results_are_those_of_one_machine(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stores = [folder / str(number) for number in range(1, OF + 1)]
    outputs = ("--json", "--sarif")
    capsys.readouterr()
    assert inject(folder / "project", tmp_path / "one", "1/1", *outputs, str(tmp_path / "one.sarif")) == ExitCode.DONE
    one = capsys.readouterr().out
    assert merged(stores, tmp_path / "all", *outputs, str(tmp_path / "all.sarif")) == ExitCode.DONE
    joined = capsys.readouterr().out
    # `run` has the times and the store, and nothing else differs by one byte.
    assert len({text.partition('\n "run": ')[0] for text in (one, joined)}) == 1
    assert list(json.loads(joined))[-1] == "run"
    assert json.loads(joined)["ending"]["planned"] == CHANGES
    assert json.loads(joined)["valid"]
    assert (tmp_path / "one.sarif").read_bytes() == (tmp_path / "all.sarif").read_bytes()
    assert records(tmp_path / "one", "attempts") == records(tmp_path / "all", "attempts")
    assert len(records(tmp_path / "all", "attempts")) == CHANGES
    assert files(tmp_path / "one", "artifacts") == files(tmp_path / "all", "artifacts")
    # The joined store is a store: its page can be written, and it can be joined again.
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "all"), "--run", json.loads(joined)["campaign"], "--html", str(page)]) == 0
    assert "clamp" in page.read_text()
    assert merged([tmp_path / "all"], tmp_path / "again") == ExitCode.DONE


def test_which_changes_a_shard_tries_is_fixed(stores: list[Path]) -> None:
    for number, store in enumerate(stores):
        indices = [data["index"] for data in records(store, "attempts").values()]
        assert sorted(indices) == list(range(number, CHANGES, OF))


def test_a_missing_shard_is_named(stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (remark,) = remarks(capsys, [*stores[:2], *stores[3:]], tmp_path / "all")
    assert (remark["code"], remark["shard"], remark["of"]) == ("missing", 3, OF)


def test_a_shard_that_was_run_twice_counts_once(
    stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = shutil.copytree(stores[1], tmp_path / "twice", symlinks=True)
    record = next((twice / "attempts").rglob("*.json"))
    record.write_text(json.dumps({**json.loads(record.read_text()), "seconds": 77.7, "runs": 99}))
    capsys.readouterr()
    assert merged([*stores, twice], tmp_path / "all", "--json") == ExitCode.DONE
    (remark,) = json.loads(capsys.readouterr().out)["run"]["remarks"]
    assert (remark["code"], remark["shard"], remark["stores"]) == ("repeated", 2, [str(stores[1]), str(twice)])


def test_two_runs_of_a_shard_that_contradict_are_named(
    stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = shutil.copytree(stores[1], tmp_path / "twice", symlinks=True)
    record = sorted((twice / "attempts").rglob("*.json"))[0]
    record.write_text(json.dumps({**json.loads(record.read_text()), "status": "timed-out"}))
    (remark,) = remarks(capsys, [*stores, twice], tmp_path / "all")
    assert (remark["code"], remark["shard"], remark["indices"]) == ("results-differ", 2, [1])


def test_a_shard_of_another_commit_or_with_other_options_is_named(
    folder: Path, stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = shutil.copytree(folder / "project", tmp_path / "project")
    with (project / "calc.py").open("a") as code:
        code.write("\n\nNEW = 1\n")
    assert inject(project, tmp_path / "other", f"3/{OF}") == ExitCode.DONE
    other, missing = remarks(capsys, [*stores[:2], *stores[3:], tmp_path / "other"], tmp_path / "all")
    assert (other["code"], other["shard"], other["differs"]) == ("other-work", 3, ["files"])
    assert (missing["code"], missing["shard"]) == ("missing", 3)
    assert inject(folder / "project", tmp_path / "seed", f"3/{OF}", "--seed", "7") == ExitCode.DONE
    other, _ = remarks(capsys, [*stores[:2], *stores[3:], tmp_path / "seed"], tmp_path / "all")
    assert (other["code"], other["differs"]) == ("other-work", ["seed"])
    assert inject(folder / "project", tmp_path / "six", f"3/{OF + 1}") == ExitCode.DONE
    other, _ = remarks(capsys, [*stores[:2], *stores[3:], tmp_path / "six"], tmp_path / "all")
    assert (other["code"], other["differs"]) == ("other-work", ["of"])


def lose_results(store: Path) -> None:
    for path in sorted((store / "attempts").rglob("*.json"))[1:]:
        path.unlink()


def damage_result(store: Path) -> None:
    sorted((store / "attempts").rglob("*.json"))[0].write_text("{")


def lose_artifact(store: Path) -> None:
    shutil.rmtree(store / "artifacts")


@pytest.mark.parametrize(("harm", "lost"), [(lose_results, [5, 10]), (damage_result, [0])])
def test_a_shard_without_all_of_its_results_is_named(
    stores: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    harm: Callable[[Path], None],
    lost: list[int],
) -> None:
    harm(stores[0])
    (remark,) = remarks(capsys, stores, tmp_path / "all")
    assert (remark["code"], remark["shard"], remark["indices"], remark["planned"]) == ("cut", 1, lost, 3)


def test_a_bug_without_its_artifact_is_a_lost_result(
    stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = {
        number
        for number, store in enumerate(stores, 1)
        if any(data["status"] == "valid" for data in records(store, "attempts").values())
    }
    assert lost
    for store in stores:
        shutil.rmtree(store / "artifacts")
    assert {r["shard"] for r in remarks(capsys, stores, tmp_path / "all") if r["code"] == "cut"} == lost


@pytest.mark.parametrize(
    "damage", [{"facts": None}, {"conditions": {}}, {"of": 10**12}, {"number": 6}, {"planned": 10**12}, {"planned": -1}]
)
def test_a_damaged_record_is_no_shard(
    stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: dict[str, object]
) -> None:
    (path,) = (stores[0] / "shards").rglob("*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    found = remarks(capsys, stores, tmp_path / "all")
    assert [(remark["code"], remark.get("shard")) for remark in found] == [("no-shard", None), ("missing", 1)]


@pytest.mark.parametrize("ending", ["time", "interrupted", "running"])
def test_how_a_shard_was_cut_is_told(
    stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    lose_results(stores[4])
    (record,) = (stores[4] / "shards").rglob("*.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "ending": ending}))
    (remark,) = remarks(capsys, stores, tmp_path / "all")
    assert (remark["code"], remark["shard"], remark["ending"]) == ("cut", 5, ending)


def test_a_shard_that_was_cut_goes_on(
    folder: Path, stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lose_results(stores[2])
    assert inject(folder / "project", stores[2], f"3/{OF}") == ExitCode.DONE
    assert merged(stores, tmp_path / "all") == ExitCode.DONE


def test_without_the_files_of_the_project_nothing_is_joined(
    stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for store in stores:
        shutil.rmtree(store / "trees")
    (remark,) = remarks(capsys, stores, tmp_path / "all")
    assert remark["code"] == "no-files"


def test_tests_that_pass_on_some_machines_only_are_named(
    stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (record,) = (stores[0] / "shards").rglob("*.json")
    data = json.loads(record.read_text())
    data["facts"] |= {"set_aside": {"tests/test_calc.py::test_add": "failed"}, "stable": data["facts"]["stable"] - 1}
    record.write_text(json.dumps(data))
    capsys.readouterr()
    assert merged(stores, tmp_path / "all", "--json") == ExitCode.DONE
    content = json.loads(capsys.readouterr().out)
    (remark,) = content["run"]["remarks"]
    assert (remark["code"], remark["differs"]) == ("tests-differ", ["tests/test_calc.py::test_add"])
    assert list(content["baseline"]["set_aside"]) == ["tests/test_calc.py::test_add"]


def test_what_is_no_store_of_a_shard(
    folder: Path, stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert merged([*stores, folder / "project"], tmp_path / "all") == ExitCode.USAGE
    shutil.rmtree(stores[1] / "shards")
    assert [r["code"] for r in remarks(capsys, stores, tmp_path / "all")] == ["no-shard", "missing"]
    assert [r["code"] for r in remarks(capsys, stores[1:2], tmp_path / "all")] == ["no-shard"]


def test_only_the_last_work_of_a_store_counts(
    folder: Path, stores: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (record,) = (stores[0] / "shards").rglob("*.json")
    data = json.loads(record.read_text())
    earlier = {**data, "key": "0" * 24, "started_at": data["started_at"] - 9}
    (stores[0] / "shards" / ("0" * 24)).mkdir()
    (stores[0] / "shards" / ("0" * 24) / record.name).write_text(json.dumps(earlier))
    assert merged(stores, tmp_path / "all") == ExitCode.DONE


@pytest.mark.parametrize(
    "options", [("--count", "3"), ("--suggest", "2"), ("--shard", "7/5"), ("--shard", "first")], ids=lambda o: o[0]
)
def test_what_cannot_be_split_is_refused(folder: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    command = ["inject", str(folder / "project"), "--store", str(tmp_path / "store"), *SANDBOX]
    shard = () if "--shard" in options else ("--shard", "1/5")
    assert main([*command, *shard, *options]) == ExitCode.USAGE
    assert not (tmp_path / "store").exists()


def test_the_gate_judges_the_joined_results(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stores = [tmp_path / "1", tmp_path / "2"]
    for number, store in enumerate(stores, 1):
        # No shard fails by its own score.
        assert inject(folder / "project", store, f"{number}/2", "--fail-under", "100") == ExitCode.DONE
    capsys.readouterr()
    assert merged(stores, tmp_path / "all", "--json") == ExitCode.NO
    assert json.loads(capsys.readouterr().out)["score"]["fail_under"] == 100
    # Twelve changes are too few, unless that many were planned and tried.
    code = merged(stores, tmp_path / "all", "--json", "--fail-under", "0")
    content = json.loads(capsys.readouterr().out)
    is_enough = content["ending"]["tried"] == CHANGES
    assert (code, content["score"]["gate"]) == ((0, "passed") if is_enough else (1, "too-few"))


def test_an_interrupted_shard_says_so(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pytest_ssr.campaign.campaign import Campaign

    attempt = Campaign.attempt

    def interrupted(self: Campaign, index: int) -> Any:
        if index >= 2:
            raise KeyboardInterrupt
        return attempt(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(Campaign, "attempt", interrupted)
        assert inject(folder / "project", tmp_path / "2", "2/2") == ExitCode.BROKEN
    (record,) = (tmp_path / "2" / "shards").rglob("*.json")
    data = json.loads(record.read_text())
    assert (data["ending"], data["tried"]) == ("interrupted", 1)
    assert "interrupted: 1 of 6 planned changes tried" in capsys.readouterr().out.splitlines()[-1]


def without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_seconds(item) for key, item in value.items() if key != "seconds"}
    return [without_seconds(item) for item in value] if isinstance(value, list) else value


@pytest.mark.long
def test_a_validation_is_split_and_joined(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bugs = tmp_path / "bugs"
    for number in range(1, OF + 1):
        shutil.copytree(folder / str(number) / "artifacts", bugs, dirs_exist_ok=True)
    damaged = sorted(bugs.iterdir())[0]
    (damaged / "bug_inject.diff").write_text("no diff")
    command = ["validate", str(bugs), "--repo", str(folder / "project"), *SANDBOX]
    capsys.readouterr()
    assert main([*command, "--json"]) == ExitCode.NO
    one = json.loads(capsys.readouterr().out)["artifacts"]
    stores = [tmp_path / str(number) for number in (1, 2, 3)]
    codes = [main([*command, "--shard", f"{n}/3", "--store", str(store)]) for n, store in enumerate(stores, 1)]
    assert codes == [ExitCode.NO, *[ExitCode.DONE] * 2]
    capsys.readouterr()
    assert merged(stores, tmp_path / "all", "--json") == ExitCode.NO
    assert without_seconds(json.loads(capsys.readouterr().out)["artifacts"]) == without_seconds(one)
    (missing,) = remarks(capsys, stores[:2], tmp_path / "none")
    assert (missing["code"], missing["shard"]) == ("missing", 3)
    next((stores[2] / "validations").rglob("*.json")).unlink()
    (cut,) = remarks(capsys, stores, tmp_path / "none")
    assert (cut["code"], cut["shard"]) == ("cut", 3)
