"""Forgeries on task directories: each planted verifier is found, and one that is sealed accepts none."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from planted_verifiers import ENVIRONMENT, FORGEABLE, SEALED

from harness.audit.card import Leak, Sealing
from harness.audit.forgery_kit import ScriptForgery, task_forgeries
from harness.audit.leaks import task_leaks
from harness.audit.sealing import SEPARATE, SHARED, _of_solution, harbor_sealing
from harness.evaluation.harbor_grading import OpenTask
from harness.harbor.containers import Engine

pytestmark = [pytest.mark.long, pytest.mark.docker]

Opening = Callable[..., OpenTask]
LATER_S = 600.0


def sealing(opened: OpenTask, names: frozenset[str]) -> Sealing:
    kit = [*task_forgeries(), *_of_solution(opened)]
    chosen = [f for f in kit if f.name in names]
    assert len(chosen) == len(names)
    return harbor_sealing(opened, deadline=time.monotonic() + LATER_S, forgeries=chosen)


def changed_containers(engine: Engine) -> list[str]:
    return [c.id for c in engine.client.containers.list(all=True)]


@pytest.mark.parametrize("name", FORGEABLE)
def test_a_forgeable_verifier_of_its_own_container_is_found(name: str, opening: Opening) -> None:
    files, wanted = FORGEABLE[name]
    found = sealing(opening("separate-same-image", files), wanted)
    assert set(found.accepted) == wanted
    assert (found.verifier, found.problem) == (SEPARATE, None)


def test_a_sealed_verifier_accepts_none(opening: Opening) -> None:
    opened = opening("separate-same-image", SEALED)
    found = harbor_sealing(opened, deadline=time.monotonic() + LATER_S)
    assert {r.forgery for r in found.forgeries} >= {f.name for f in task_forgeries()}
    assert {(r.own, r.ours) for r in found.forgeries} == {(False, False)}


def test_in_a_shared_container_what_the_agent_leaves_decides(opening: Opening) -> None:
    """The same verifier, and a grade from files alone, see none of it."""
    names = frozenset({"background-writer", "keeps-reward", "bash-replaced", "python-on-path"})
    found = sealing(opening("shared", SEALED), names)
    assert found.verifier == SHARED
    assert {"background-writer", "keeps-reward", "bash-replaced"} <= set(found.accepted)
    assert {r.ours for r in found.forgeries} == {False}


def test_a_script_that_hangs_is_ended_and_nothing_is_left(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.audit.sealing._SCRIPT_S", 1.0)
    opened = opening("shared", SEALED)
    before = changed_containers(opened.trial.engine)
    hangs = ScriptForgery("hangs", "sleeps", "sleep 1000")
    found = harbor_sealing(opened, deadline=time.monotonic() + LATER_S, forgeries=[hangs])
    assert found.forgeries == ()
    assert changed_containers(opened.trial.engine) == before


def test_a_verifier_that_hangs_is_ended_at_the_deadline(opening: Opening) -> None:
    check = SEALED["tests/test.sh"].replace("#!/bin/bash\n", "#!/bin/bash\nif [ -e /app/hang ]; then sleep 1000; fi\n")
    opened = opening("shared", {**SEALED, "tests/test.sh": check})
    hangs = ScriptForgery("hangs", "makes the verifier sleep", "touch hang")
    (result,) = harbor_sealing(opened, deadline=time.monotonic() + 20, forgeries=[hangs]).forgeries
    assert (result.own, result.ours) == (None, None)


SOLVE = """\
#!/bin/bash
printf 'def total(numbers):\\n    return sum(numbers)\\n' > /app/sums.py
echo 'the discount is computed twice' > /app/discount.txt
"""


def test_tests_with_more_than_the_agent_has_are_hidden(opening: Opening) -> None:
    more = SEALED["tests/test_sums.py"] + "\n\ndef test_more():\n    assert total([1, 2, 3, 4]) == 10\n"
    hidden = opening("shared", {**SEALED, "tests/test_sums.py": more})
    assert task_leaks(hidden) == ()
    notes = {**ENVIRONMENT, "environment/notes.txt": "def test_more():\n    assert total([1, 2, 3, 4]) == 10\n"}
    assert task_leaks(opening("separate-same-image", {**SEALED, **notes, "tests/test_sums.py": more})) == (
        Leak.TESTS_IN_IMAGE,
    )


def test_what_the_image_shows_is_named(opening: Opening) -> None:
    shown = {
        **SEALED,
        "environment/Dockerfile": ENVIRONMENT["environment/Dockerfile"] + "COPY answer.sh /opt/notes/\n",
        "environment/answer.sh": SOLVE,
        "solution/solve.sh": SOLVE,
    }
    assert task_leaks(opening("shared", {**SEALED, "environment/tests/test_sums.py": None})) == ()
    assert task_leaks(opening("separate-same-image", shown)) == (Leak.SOLUTION_IN_IMAGE, Leak.TESTS_IN_IMAGE)
