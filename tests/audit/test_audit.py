"""The command `ssr audit` on rows whose tests are good, weak, unsteady or wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from audited_rows import UNSTEADY, ids, write_audited
from plain import plain_python
from rows import git, written

from harness.audit.card import Card, Cause, ChangeStatus, Condition, Unsound
from harness.audit.hard_coded import OPERATOR
from harness.cli.commands.audit import PAGE, SUMMARY
from pytest_ssr import __version__
from pytest_ssr.records.reasons import ReasonCode

pytestmark = pytest.mark.long


class Audit:
    """One run over all rows."""

    def __init__(self, folder: Path) -> None:
        python = plain_python()
        hashed = subprocess.run(
            [python, "-c", "print(hash('x'), next(iter({'x', 'y'})))"],
            env={"PYTHONHASHSEED": "0"},
            capture_output=True,
            check=True,
        )
        number, first = hashed.stdout.decode().split()
        self.clones, rows = write_audited(folder, int(number), first)
        self.rows = {row["instance_id"].rpartition("-")[2]: row for row in rows}
        self.out = folder / "out"
        path = written(folder / "rows.jsonl", rows)
        self.command = [sys.executable, "-m", "harness.cli", "audit", str(path), "--repos", str(self.clones)]
        self.command += ["--python", str(python), "--out", str(self.out), "--strengthen", "--time", "10m"]
        self.done = self.run()
        self.cards = {card.task.rpartition("-")[2]: card for card in self.read()}

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV", "SSR_"))}
        return subprocess.run([*self.command, *more], env=env, capture_output=True, text=True, timeout=900, check=False)

    def read(self) -> list[Card]:
        return [Card.read(json.loads(line)) for line in (self.out / "cards.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return Audit(tmp_path_factory.mktemp("audit"))


def test_every_row_has_a_card_in_the_order_of_the_dataset(audit: Audit) -> None:
    assert audit.done.returncode == 3, audit.done.stderr
    assert [card.task for card in audit.read()] == [row["instance_id"] for row in audit.rows.values()]


def test_good_tests_are_sound_and_sharp(audit: Audit) -> None:
    card = audit.cards["good"]
    assert card.is_sound
    assert card.problem is None
    assert card.sound is not None
    assert card.sharp is not None
    assert {Condition.PLAIN, Condition.HASH_SEED, Condition.ORDER, Condition.TIME_ZONE} <= set(card.sound.conditions)
    assert card.sharp.counted >= 20
    assert not card.sharp.proven, [change for change in card.sharp.changes if change.is_proven]


def test_weak_tests_are_less_sharp_with_proofs(audit: Audit) -> None:
    good, weak = audit.cards["good"].sharp, audit.cards["weak"].sharp
    assert good is not None
    assert weak is not None
    assert good.rate is not None
    assert weak.rate is not None
    assert weak.rate < good.rate - 0.2
    assert weak.proven >= 3


def test_a_solution_that_hard_codes_the_calls_of_the_tests_survives_with_a_proof(audit: Audit) -> None:
    coded = audit.cards["coded"].sharp
    assert coded is not None
    (change,) = [change for change in coded.changes if change.operator == OPERATOR]
    assert (change.scope, change.status, change.is_proven) == ("price", ChangeStatus.SURVIVED, True)


def test_the_tests_that_strengthen_pass_on_the_solution_and_fail_without_it(audit: Audit, tmp_path: Path) -> None:
    row = audit.rows["weak"]
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(audit.clones / "acme__shop"), str(clone))
    for number, patch in enumerate((row["patch"], (audit.out / "strengthened" / "acme__shop-weak.diff").read_text())):
        path = tmp_path / f"{number}.diff"
        path.write_text(patch)
        git(clone, "apply", str(path))
    tests = sorted(path.name for path in clone.glob("test_*audit*.py"))
    assert tests
    run = [str(plain_python()), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    assert subprocess.run(run, cwd=clone, capture_output=True, check=False).returncode == 0
    git(clone, "checkout", "-q", "--", "shop.py")
    assert subprocess.run(run, cwd=clone, capture_output=True, check=False).returncode != 0


def test_each_unsteady_test_is_named_with_its_cause(audit: Audit) -> None:
    sound = audit.cards["unsteady"].sound
    assert sound is not None
    assert sound.problems == (Unsound.UNSTEADY,)
    expected = {ids(name)[0]: cause for name, cause in UNSTEADY.items()}
    if Condition.CLOCK not in sound.conditions:
        expected = {test: cause for test, cause in expected.items() if cause != "clock"}
    assert {test.test: str(test.cause) for test in sound.unsteady} == expected


@pytest.mark.parametrize(
    ("name", "problem"), [("fails", Unsound.REFERENCE_FAILS), ("passes", Unsound.EMPTY_RESOLVES)], ids=str
)
def test_a_row_that_does_not_hold_is_not_sound(audit: Audit, name: str, problem: Unsound) -> None:
    card = audit.cards[name]
    assert card.sound is not None
    assert card.sound.problems == (problem,)
    assert card.problem is not None
    assert card.problem.code is ReasonCode.INSTANCE_UNUSABLE
    assert card.sharpness is None


def test_a_test_that_needs_a_network_is_named(audit: Audit) -> None:
    sound = audit.cards["network"].sound
    assert sound is not None
    assert sound.problems == (Unsound.REFERENCE_FAILS,)
    assert [(test.test, test.cause) for test in sound.unsteady] == [(ids("network")[0], Cause.NETWORK)]


def test_a_solution_without_code_has_no_sharpness(audit: Audit) -> None:
    card = audit.cards["data"]
    assert card.is_sound
    assert card.sharp is not None
    assert card.sharpness is None
    assert card.sharp.problem is not None
    assert card.sharp.problem.code is ReasonCode.NO_CODE_CHANGED


def test_a_row_without_a_solution_is_no_sound_task(audit: Audit) -> None:
    card = audit.cards["none"]
    assert not card.is_audited
    assert not card.is_sound
    assert card.problem is not None
    assert card.problem.code is ReasonCode.INVALID_ROW


def test_names_and_texts_that_nobody_could_know_are_listed(audit: Audit) -> None:
    narrow = audit.cards["good"].narrow
    assert narrow is not None
    assert {token.text for token in narrow.tokens} == {"total_of_order"}


def test_a_grade_has_a_cost(audit: Audit) -> None:
    cost = audit.cards["good"].cost
    assert cost.grade_s > 0
    assert cost.audit_cpu_s > 0
    assert cost.tree_mib > 0
    assert cost.memory_mib is not None
    assert cost.memory_mib > 5


def test_the_page_has_the_name_of_the_dataset_and_how_it_was_made(audit: Audit) -> None:
    html = (audit.out / PAGE).read_text()
    about = json.loads((audit.out / SUMMARY).read_text())
    assert "<title>Audit of rows</title>" in html
    assert about["version"] == __version__
    assert about["wanted"] == about["tasks"]
    assert f"Made on {about['made'][:10]} at {about['made'][11:16]} UTC" in html


def test_a_second_run_audits_nothing_again(audit: Audit) -> None:
    before = audit.read()
    again = audit.run("--only", "good|weak", "--json")
    assert json.loads(again.stdout)["sound"] == 2
    assert again.returncode == 0
    after = {card.task: card for card in audit.read()}
    assert after == {card.task: card for card in before if card.task.endswith(("good", "weak"))}
