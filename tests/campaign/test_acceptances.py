"""Survivors that a team accepts do not count, until their code changes or their day has passed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from plain import plain_python

from harness.settings.survivors import AcceptSettings
from pytest_ssr.campaign.acceptances import (
    Acceptance,
    AcceptanceKind,
    add_acceptances,
    read_acceptances,
    remove_acceptances,
)
from pytest_ssr.errors import SettingsError
from pytest_ssr.project.report_marks import ACCEPTED_FILE

CODE = "def double(x):\n    return x * 2\n\n\ndef unchecked(x):\n    return x + 1\n"
TESTS = "import calc\n\n\ndef test_double():\n    assert calc.double(3) == 6\n    calc.unchecked(1)\n\n\ndef test_import():\n    assert calc\n"
HOSTILE = "a \"quote\", \\ a backslash,\n[[accepted]]\n\x7f, \x1b[31m, é, \U0001f40d and '''"
Run = Callable[..., tuple[int, str]]


def entry(name: str, **more: object) -> Acceptance:
    return Acceptance(id=name, reason="because", **more)  # type: ignore[arg-type]


def test_entries_are_added_replaced_and_removed(tmp_path: Path) -> None:
    first, second = entry("a-1", path="x.py"), entry("b-2", until=date(2030, 1, 2), kind=AcceptanceKind.EQUIVALENT)
    add_acceptances(tmp_path, [first])
    add_acceptances(tmp_path, [second])
    assert read_acceptances(tmp_path).entries == [first, second]
    replaced = Acceptance("a-1", HOSTILE, change=HOSTILE)
    add_acceptances(tmp_path, [replaced])
    assert read_acceptances(tmp_path).entries == [second, replaced]
    remove_acceptances(tmp_path, ["b-2"])
    assert read_acceptances(tmp_path).entries == [replaced]


def test_comments_of_people_stay(tmp_path: Path) -> None:
    add_acceptances(tmp_path, [entry("a-1"), entry("b-2")])
    path = tmp_path / ACCEPTED_FILE
    path.write_text("# ours\n" + path.read_text().replace('id = "b-2"', '# see the wiki\nid = "b-2"'))
    remove_acceptances(tmp_path, ["a-1"])
    assert "# ours" in path.read_text()
    assert "# see the wiki" in path.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "accepted = [",
        "accepted = 3",
        "other = 1",
        "[[accepted]]\nid = 'a'",
        "[[accepted]]\nid = 'a'\nreason = ' '",
        "[[accepted]]\nid = 'a'\nreason = 'b'\nkind = 'c'",
        "[[accepted]]\nid = 'a'\nreason = 'b'\nuntil = 'tomorrow'",
        "[[accepted]]\nid = 'a'\nreason = 'b'\nuntli = 2030-01-01",
        "\xff",
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / ACCEPTED_FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError, match=ACCEPTED_FILE):
        read_acceptances(tmp_path)


def test_a_file_of_another_form_is_not_rewritten(tmp_path: Path) -> None:
    (tmp_path / ACCEPTED_FILE).write_text("accepted = [{id = 'a', reason = 'b'}]\n")
    assert [e.id for e in read_acceptances(tmp_path).entries] == ["a"]
    with pytest.raises(SettingsError):
        add_acceptances(tmp_path, [entry("b-2")])
    assert [e.id for e in read_acceptances(tmp_path).entries] == ["a"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "calc.py").write_text(CODE)
    (tmp_path / "test_calc.py").write_text(TESTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judged(run: Run, *options: str) -> tuple[int, dict[str, object]]:
    python = str(plain_python())
    code, out = run("inject", ".", "--injector", "mutation", "--fail-on", "new", "--json", "--python", python, *options)
    return code, json.loads(out)


def test_the_gate_fails_on_new_survivors_only(project: Path, run: Run) -> None:
    code, found = judged(run)
    survivors = found["survivors"]
    assert isinstance(survivors, list)
    assert code == 1
    assert "unchecked" in {s["scope"] for s in survivors}
    ids = [str(s["id"]) for s in survivors]
    assert run("accept", *ids, "--reason", "a sketch")[0] == 0
    code, after = judged(run)
    assert code == 0
    assert after["campaign"] == found["campaign"], "nothing is measured again"
    assert {s["accepted"]["reason"] for s in after["survivors"]} == {"a sketch"}  # type: ignore[attr-defined]

    # Moved, and in another file: still accepted.
    (project / "calc.py").write_text("# A comment.\n\n" + CODE.replace("def unchecked", "\n\ndef unchecked"))
    (project / "calc.py").rename(project / "maths.py")
    (project / "test_calc.py").write_text(TESTS.replace("import calc", "import maths as calc"))
    assert judged(run)[0] == 0
    # Another function: it comes back, and the entries are stale.
    (project / "maths.py").write_text(CODE.replace("x + 1", "x + 3"))
    assert judged(run)[0] == 1
    assert run("accept", "--prune")[0] == 0
    assert "unchecked" not in {entry.function for entry in read_acceptances(project).entries}


def test_an_entry_whose_day_has_passed_does_not_hold(project: Path, run: Run) -> None:
    _, found = judged(run)
    ids = [s["id"] for s in found["survivors"]]  # type: ignore[attr-defined]
    assert run("accept", *ids, "--reason", "for now", "--until", "2020-01-01")[0] == 0
    assert judged(run)[0] == 1
    assert run("accept", *ids, "--reason", "for now", "--until", "2999-01-01")[0] == 0
    assert judged(run)[0] == 0
    assert run("accept", *ids, "--remove")[0] == 0
    assert judged(run)[0] == 1


def test_what_is_not_useful_ranks_last(project: Path, run: Run) -> None:
    _, found = judged(run)
    first = found["survivors"][0]  # type: ignore[index]
    assert run("accept", first["id"], "--reason", "noise", "--kind", "not-useful")[0] == 0
    _, after = judged(run)
    operators = [s["operator"] for s in after["survivors"]]  # type: ignore[attr-defined]
    assert operators[0] != first["operator"] == operators[-1]
    code, out = run("feedback")
    assert code == 0
    assert [set(json.loads(line)) for line in out.splitlines()] == [{"version", "kind", "operator"}]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere", "--reason", "x"],
        ["--remove"],
        ["a-1"],
        ["a-1", "--reason", "x", "--until", "soon"],
        ["a-1", "--reason", "x", "--kind", "other"],
    ],
)
def test_mistakes(project: Path, run: Run, arguments: list[str]) -> None:
    assert run("accept", *arguments)[0] == 2
    assert not (project / ACCEPTED_FILE).exists()


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ACCEPTED_FILE).symlink_to(os.devnull)
    with pytest.raises(SettingsError):
        read_acceptances(tmp_path)


@pytest.mark.parametrize("until", ["", "soon", "2027-02-30"])
def test_a_last_day_that_is_no_date_is_refused(until: str) -> None:
    with pytest.raises(SettingsError) as error:
        AcceptSettings(ids=("a-1",), reason="x", until=until).check()
    assert error.value.option == "until"
