"""Both roles played by a model behind a real server, in real sandboxes; regressions for known faults of SSR Studio."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from model_server import Served, message, serving
from proven import FILE, Proven

from harness.agents.limits import RolloutLimits
from harness.injectors.artifact_codec import decode_artifact, encode_artifact
from harness.injectors.campaign import ModelCampaign
from harness.injectors.model import ModelInjector
from harness.injectors.project_history import history_of
from harness.models.factory import open_model
from harness.models.http import HttpModel
from harness.records.messages import Sampling
from harness.records.trajectory import ExitReason, Journal, Trajectory, read_trajectory
from harness.rollouts.player_factory import PlayerFactory
from harness.rollouts.runner import PATCH, ROLLOUTS, TRAJECTORY, RolloutRunner
from harness.solvers.model import ModelSolver
from harness.solvers.replay import ReplaySolver
from pytest_ssr.errors import ArtifactError, ModelError, ProjectError, SettingsError
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.patch import Patch
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.sandbox import load_provider
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.bubblewrap
FIX = ("editor", {"command": "str_replace", "path": "calc.py", "old_str": "return a - b", "new_str": "return a + b"})
SUBMIT = ("submit", {})


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return ("bash", {"command": command})


OPENED: list[HttpModel] = []


@pytest.fixture(autouse=True)
def _close_models() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def model_at(served: Served) -> HttpModel:
    OPENED.append(HttpModel("vllm:tiny", served.url))
    return OPENED[-1]


def solving(proven: Proven, served: Served, store: Store, **limits: Any) -> RolloutRunner:
    solver = ModelSolver(model_at(served), RolloutLimits(**limits), Sampling(max_tokens=200))
    return RolloutRunner(proven.runner, proven.artifact, proven.verdict, solver, store)


@pytest.mark.parametrize("sandbox", ["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)])
def test_a_complete_attempt_over_http_and_its_replay(proven: Proven, tmp_path: Path, sandbox: str) -> None:
    before, proven.runner = proven.runner, replace(proven.runner, provider=load_provider(sandbox))
    store = Store(tmp_path / "store")
    try:
        script = [message("I look.", bash("python -m pytest -q | tail -3; git log --oneline")), message("", FIX)]
        with serving(*script, message("", bash("git diff --stat")), message("", SUBMIT)) as served:
            (rollout,) = solving(proven, served, store).attempts(1)
        assert rollout.resolved, rollout.reason
        assert (rollout.exit_reason, rollout.ending, rollout.reward) == ("submitted", "completed", 1.0)
        path = store.root / ROLLOUTS / rollout.id / TRAJECTORY
        done = read_trajectory(path)
        assert done.on_policy
        assert [s.tool for s in done.steps] == ["bash", "editor", "bash", "submit"]
        assert re.search(r"\d passed", done.messages[3].content), "the weakened tests pass"
        assert " start\n" in done.messages[3].content, "a fresh repository of one commit"
        assert "1 file changed" in done.messages[7].content
        assert b"+    return a + b" in (store.root / ROLLOUTS / rollout.id / PATCH).read_bytes()
        again = Store(tmp_path / "again")
        (repeated,) = RolloutRunner(
            proven.runner, proven.artifact, proven.verdict, ReplaySolver(store.root / ROLLOUTS), again
        ).attempts(1)
        assert repeated.resolved
        assert (again.root / ROLLOUTS / repeated.id / TRAJECTORY).read_bytes() == path.read_bytes()
    finally:
        proven.runner = before


def test_the_solver_is_shown_the_reversed_weakening_and_it_applies(proven: Proven, tmp_path: Path) -> None:
    """SSR Studio reversed a diff and kept its hunk headers: `git apply` called it corrupt (section 2.6, 5)."""
    with serving(message("", SUBMIT)) as served:
        solving(proven, served, Store(tmp_path / "s"), steps=1).attempts(1)
    task = served.asked[0]["messages"][1]["content"]
    shown = task.split("```diff\n")[1].split("\n```")[0] + "\n"
    assert shown.encode() == proven.artifact.weaken.reverse().data
    apply = f"cat > /tmp/spec.diff <<'END'\n{shown}END\ngit apply --check /tmp/spec.diff && echo it applies"
    with serving(message("", bash(apply))) as served:
        solving(proven, served, Store(tmp_path / "t"), steps=2).attempts(1)
    assert "it applies" in served.asked[1]["messages"][-1]["content"]


def test_the_solver_s_sandbox_contains_nothing_of_the_bug(proven: Proven, tmp_path: Path) -> None:
    """SSR Studio left both diffs in the working directory and committed them (section 2.6, 3)."""
    look = (
        "find / -name '*.diff' -not -path '/proc/*' -not -path '/sys/*' 2>/dev/null; git log -p --all | grep -c 'a + b'"
    )
    with serving(message("", bash(look))) as served:
        solving(proven, served, Store(tmp_path / "s"), steps=2).attempts(1)
    assert served.asked[1]["messages"][-1]["content"] == "0\n[exit status 1]"


def test_attempts_start_from_fresh_trees(proven: Proven, tmp_path: Path) -> None:
    """SSR Studio's second attempt started on the tree of the first (section 2.6, 2)."""
    with serving(message("", FIX), message("", SUBMIT), message("", bash("cat calc.py; git status --short"))) as served:
        first, second = solving(proven, served, Store(tmp_path / "s"), steps=2).attempts(2)
    assert first.resolved
    assert not second.resolved
    seen = served.asked[-1]["messages"][-1]["content"]
    assert "return a - b" in seen
    assert " M " not in seen


def test_a_comment_is_not_a_repair_because_the_tests_are_restored(proven: Proven, tmp_path: Path) -> None:
    """SSR Studio lost the tag it restored tests from: a comment was a success (section 2.6, 1)."""
    comment = bash("echo '# better' >> calc.py; echo 'def test_add(): pass' >> tests/test_calc.py")
    with serving(message("", comment), message("", SUBMIT)) as served:
        (rollout,) = solving(proven, served, Store(tmp_path / "s")).attempts(1)
    assert rollout.resolved is False
    assert rollout.reward == -1
    assert any(FILE in flag.details for flag in rollout.flags)


def test_tools_are_sent_and_observations_follow_their_calls(proven: Proven, tmp_path: Path) -> None:
    """SSR Studio sent no tools to local models and dropped tool calls before their results (section 2.6, 7)."""
    with serving(message("", bash("ls")), message("", SUBMIT)) as served:
        solving(proven, served, Store(tmp_path / "s"), steps=2).attempts(1)
    assert [t["function"]["name"] for t in served.asked[0]["tools"]] == ["bash", "editor", "submit"]
    roles = [m["role"] for m in served.asked[1]["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]
    call = served.asked[1]["messages"][2]["tool_calls"][0]
    assert served.asked[1]["messages"][3]["tool_call_id"] == call["id"]


def test_an_attempt_without_a_patch_is_unresolved_and_one_without_a_server_has_no_grade(
    proven: Proven, tmp_path: Path
) -> None:
    with serving(message("", bash("ls"))) as served:
        (rollout,) = solving(proven, served, Store(tmp_path / "s"), steps=1).attempts(1)
        assert (rollout.resolved, rollout.exit_reason, rollout.ending) == (False, "step_limit", "truncated")
        gone = solving(proven, served, Store(tmp_path / "t"))
    (rollout,) = gone.attempts(1)
    assert (rollout.resolved, rollout.reward, rollout.ending) == (None, None, "aborted")
    assert "cannot be reached" in rollout.reason.detail
    assert gone.stored_attempt(0) is None, "it is repeated"


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        (["rm -rf * .git", "ls -a"], ExitReason.STEP_LIMIT),
        (['rm -rf "$PWD" .git; cd /; ls'], ExitReason.STEP_LIMIT),
        (["kill -9 -1; sleep 9", "echo alive"], ExitReason.STEP_LIMIT),
        (["yes | head -c 100000000"], ExitReason.STEP_LIMIT),
        (["python -c \"import urllib.request as u; u.urlopen('http://192.0.2.1', timeout=3)\""], ExitReason.STEP_LIMIT),
        ([":(){ :|:& };:", "echo alive"], ExitReason.STEP_LIMIT),
        (["sleep 100000 & disown; echo started"], ExitReason.STEP_LIMIT),
        (["ls"] * 9, ExitReason.LOOP),
    ],
)
def test_a_model_that_misbehaves_ends_cleanly(
    proven: Proven, tmp_path: Path, commands: list[str], reason: ExitReason
) -> None:
    store = Store(tmp_path / "s")
    with serving(*(message("", bash(c)) for c in commands)) as served:
        steps = 20 if reason is ExitReason.LOOP else len(commands)
        limits = {"steps": steps, "command_s": 20.0, "repeats": 3}
        (rollout,) = solving(proven, served, store, **limits).attempts(1)
    assert (rollout.exit_reason, rollout.resolved) == (str(reason), False)
    done = read_trajectory(store.root / ROLLOUTS / rollout.id / TRAJECTORY)
    assert done.exit_reason is reason
    assert all(len(m.content) < 12_000 for m in done.messages)
    if "alive" in commands[-1]:
        assert done.messages[-1].content.startswith("alive")
    if "urllib" in commands[0]:
        assert "unreachable" in done.messages[-1].content


def five_files(bug: Patch, weaken: Patch) -> str:
    """Return the commands that write these two diffs with our own script and parser."""
    files = {
        "test_script.sh": default_script([FILE], options=()).decode(),
        "test_files.txt": FILE + "\n",
        "test_parser.py": default_parser().decode(),
        "bug_inject.diff": bug.data.decode(),
        "test_weaken.diff": weaken.data.decode(),
    }
    return "\n".join(
        f"mkdir -p $A; cat > $A/{name} <<'END{n}'\n{text}END{n}" for n, (name, text) in enumerate(files.items())
    )


def inject(
    proven: Proven,
    script: Callable[[str], list[dict[str, Any]]],
    tmp_path: Path,
    strategy: str = "direct",
    at: int = 1,
    **named: Any,
) -> tuple[Any, Served]:
    """Run a model as injector; its script is a function of the folder that the task names."""
    with serving() as served:
        pending: list[dict[str, Any]] = []

        def reply(request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
            from model_server import response

            if not pending:
                folder = re.search(r"folder `([^`]+)`", request["messages"][1]["content"])
                assert folder is not None
                pending.extend(script(folder[1]))
            return 200, {}, json.dumps(response(pending.pop(0), request, served)).encode()

        served.replies[:] = [reply] * 20
        injector = ModelInjector(model_at(served), strategy, RolloutLimits(steps=12), Sampling(max_tokens=200), **named)
        header = Trajectory("i", proven.runner.snapshot.tree_hash, "injector", 0, "vllm:tiny")
        journal = Journal(header, tmp_path / "trajectory.jsonl")
        injected = injector.inject(proven.runner.scoped(), seed=at, journal=journal)
    return injected, served


@pytest.mark.long
def test_a_model_injects_a_valid_bug(proven: Proven, tmp_path: Path) -> None:
    good = five_files(proven.artifact.bug, proven.artifact.weaken)
    injected, served = inject(
        proven, lambda folder: [message("", bash(f"A={folder}\n{good}")), message("", SUBMIT)], tmp_path
    )
    assert injected.valid, injected.reason
    assert injected.verdict.fail_to_pass == proven.verdict.fail_to_pass
    assert injected.trajectory.result["artifact"] == injected.verdict.artifact_id
    assert injected.artifact is not None
    assert decode_artifact(injected.trajectory.result) == injected.artifact
    assert read_trajectory(tmp_path / "trajectory.jsonl") == injected.trajectory
    task = served.asked[0]["messages"][1]["content"]
    assert "at least 1 of the chosen tests pass" in task
    assert "$" not in task.replace("$A", ""), "every placeholder of the prompt is filled in"


@pytest.mark.long
def test_an_injection_is_replayed_from_its_recording(proven: Proven, tmp_path: Path) -> None:
    good = five_files(proven.artifact.bug, proven.artifact.weaken)
    script = [message("", bash(f"A=FOLDER\n{good}")), message("", SUBMIT)]
    injected, _ = inject(proven, lambda folder: json.loads(json.dumps(script).replace("FOLDER", folder)), tmp_path)
    with PlayerFactory() as roles:
        injector = roles.injector(f"replay:{tmp_path}")
        campaign = ModelCampaign(proven.runner.scoped(), Store(tmp_path / "again"), injector, seed=3)
        attempt = campaign.attempt(0)
        assert attempt is not None
        assert (attempt.status, attempt.artifact_id) == ("valid", injected.verdict.artifact_id)
        assert attempt.strategy == injected.strategy
        (again,) = (tmp_path / "again").rglob("trajectory.jsonl")
        assert again.read_bytes() == (tmp_path / "trajectory.jsonl").read_bytes()
        with pytest.raises(ModelError, match="contains no attempt 2 at this tree"):
            campaign.attempt(1)


@pytest.mark.parametrize(
    "result",
    [
        {"artifact": "a"},
        {"files": 3},
        {"files": {}},
        {"files": {"test_script.sh": "x"}, "files_base64": {"test_parser.py": 1}},
    ],
)
def test_a_recording_without_complete_files_is_an_error(result: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError):
        decode_artifact(result)
    assert decode_artifact({"rejected": "no"}) is None


def test_bytes_of_an_artifact_are_recorded_without_loss(proven: Proven) -> None:
    diff = (
        b"diff --git a/a.py b/a.py\nindex 1111111..2222222 100644\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-1\n+'\xff'\n"
    )
    odd = replace(proven.artifact, bug=Patch.parse(diff), info={})
    assert decode_artifact(json.loads(json.dumps(encode_artifact(odd)))) == odd


def test_the_prompt_contains_the_thresholds(proven: Proven, tmp_path: Path) -> None:
    """SSR Studio never gave the injector its thresholds (section 2.6, 6)."""
    runner = proven.runner.scoped()
    runner = replace(
        runner, settings=replace(runner.settings, min_passing_tests=17, min_changed_files=13, min_failing_tests=11)
    )
    other = Proven(proven.project, proven.store, runner, proven.artifact, proven.verdict, proven.source)
    _, served = inject(other, lambda folder: [message("I will not")] * 9, tmp_path, "removal")
    task = served.asked[0]["messages"][1]["content"]
    assert "in less than\n  90 seconds" in task
    assert "and the weakened suite passes" in task
    for text in (
        "at least 17 of the chosen",
        "at least 13 code files",
        "at least 11 tests",
        "in at least 13 code files",
    ):
        assert text in task


@pytest.mark.long
def test_a_rejection_gives_its_reason_and_the_bug_may_be_fixed(proven: Proven, tmp_path: Path) -> None:
    bad = five_files(proven.artifact.weaken, proven.artifact.weaken)
    good = five_files(proven.artifact.bug, proven.artifact.weaken)

    def script(folder: str) -> list[dict[str, Any]]:
        steps = [SUBMIT, bash(f"A={folder}\n{bad}"), SUBMIT, bash(f"A={folder}\n{good}"), SUBMIT]
        return [message("", step) for step in steps]

    injected, _ = inject(proven, script, tmp_path)
    assert injected.valid
    rejections_shown = [m.content for m in injected.trajectory.messages if m.content.startswith("rejected")]
    assert "bug_inject.diff" in rejections_shown[0]
    assert rejections_shown[1].startswith("rejected: bug-scope: ")
    assert rejections_shown[1].endswith("(1 more times)")
    injected, _ = inject(proven, script, tmp_path, rejections=1)
    assert not injected.valid
    assert injected.verdict.rejected_by == "bug-scope"
    assert injected.trajectory.result["rejected"].startswith("bug-scope")

    def emptied(folder: str) -> list[dict[str, Any]]:
        return [*script(folder)[1:3], message("", bash(f"rm -r {folder}")), message("", SUBMIT)]

    injected, _ = inject(proven, emptied, tmp_path, rejections=1)
    assert (injected.artifact, injected.verdict) == (None, None), "nothing is kept of the previous submission"
    assert injected.reason is not None
    assert injected.reason.code is CheckCode.UNREADABLE
    assert "test_script.sh" in injected.reason.text


def test_no_submission_is_not_a_bug(proven: Proven, tmp_path: Path) -> None:
    """SSR Studio counted invalid bugs as valid (section 2.6, 9)."""
    injected, _ = inject(proven, lambda folder: [message("done, I think")] * 9, tmp_path)
    assert not injected.valid
    assert injected.artifact is None
    assert injected.reason is not None
    assert injected.reason.code is CheckCode.NOTHING_SUBMITTED
    assert injected.reason.details["exit_reason"] == "format"


def test_the_history_strategy_sees_the_history(proven: Proven, tmp_path: Path) -> None:
    """SSR Studio rewrote the history before the injector saw it (section 2.6, 4)."""
    look = message("", bash("git log --oneline; git remote; git status --short"))
    injected, _ = inject(proven, lambda folder: [look] + [message("no")] * 9, tmp_path, "history")
    seen = injected.trajectory.messages[3].content
    assert seen.split()[1] == "first"
    assert seen.count("\n") == 1, "no remote, nothing changed"
    with pytest.raises(SettingsError, match="'guess' is not a strategy"):
        ModelInjector(open_model_of(tmp_path), "guess")


def without_git(proven: Proven, tmp_path: Path) -> Proven:
    copy = tmp_path / "copy"
    shutil.copytree(proven.project, copy, ignore=shutil.ignore_patterns(".git", "__pycache__"))
    runner = proven.runner.scoped()
    runner = replace(runner, snapshot=replace(runner.snapshot, origin=copy))
    return Proven(copy, proven.store, runner, proven.artifact, proven.verdict, proven.source)


def test_a_project_without_history_is_an_error_before_any_request(proven: Proven, tmp_path: Path) -> None:
    plain = without_git(proven, tmp_path)
    expected = (
        r"copy has no git history of its own to revert parts of; choose another strategy than `history`: direct, rem"
    )
    with serving() as served:
        injector = ModelInjector(model_at(served), "history")
        with pytest.raises(ProjectError, match=expected):
            ModelCampaign(plain.runner, plain.store, injector, seed=0)
        with pytest.raises(ProjectError, match=expected):
            inject(plain, lambda folder: [message("no")] * 9, tmp_path, "history")
        assert not served.asked
    empty = tmp_path / "empty"
    empty.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=empty, check=True)
    assert [history_of(p) is not None for p in (empty, plain.project, proven.project)] == [False, False, True]


def test_the_mixture_is_removal_without_a_history(proven: Proven, tmp_path: Path) -> None:
    plain, injector = without_git(proven, tmp_path), ModelInjector(open_model_of(tmp_path))
    assert injector.strategies(plain.runner.snapshot) == ["removal"]
    assert injector.strategies(proven.runner.snapshot) == ["removal", "history"]
    drawn = {
        inject(plain, lambda folder: [message("no")] * 9, tmp_path, "removal+history", at=seed)[0].strategy
        for seed in range(4)
    }
    assert drawn == {"removal"}


def test_settings_without_room_for_a_prompt_are_an_error(proven: Proven, tmp_path: Path) -> None:
    with serving(max_model_len=150) as served:
        with pytest.raises(
            SettingsError, match="max_tokens is 200, and the context window of vllm:tiny has 150 tokens"
        ):
            solving(proven, served, Store(tmp_path / "s")).attempts(2)
        with pytest.raises(
            SettingsError, match="max_tokens is 4096, and the context window of vllm:tiny has 150 tokens"
        ):
            ModelCampaign(proven.runner, proven.store, ModelInjector(model_at(served), "direct"), seed=0)
        with PlayerFactory() as roles:
            for opened in (roles.solver, lambda name: roles.injector(name, strategy="direct", rejections=0)):
                with pytest.raises(
                    SettingsError, match=r"max_tokens is 4096, and the context window of vllm:http://.* has 150 tokens"
                ):
                    opened(f"vllm:{served.url}")
        assert not served.asked
    assert not list((tmp_path / "s").rglob("rollout.json"))


@pytest.mark.long
def test_a_tree_that_cannot_be_submitted_is_reported(proven: Proven, tmp_path: Path) -> None:
    core = bash("head -c 17000000 /dev/zero > core")
    steps = [
        message("", core),
        message("", SUBMIT),
        message("", bash("rm core")),
        message("", FIX),
        message("", SUBMIT),
    ]
    with serving(*steps) as served:
        (rollout,) = solving(proven, served, Store(tmp_path / "s")).attempts(1)
    assert rollout.resolved
    assert (
        "this cannot be submitted: core is changed and larger than 16 MiB" in served.asked[2]["messages"][-1]["content"]
    )
    store = Store(tmp_path / "t")
    with serving(message("", core)) as served:
        (rollout,) = solving(proven, served, store, steps=1).attempts(1)
    done = read_trajectory(store.root / ROLLOUTS / rollout.id / TRAJECTORY)
    assert str(done.result["left"]).startswith("the partial work cannot be submitted: core is changed and larger")
    store = Store(tmp_path / "u")
    with serving(message("", FIX)) as served:
        one = solving(proven, served, store, steps=1)
        one.grade_unsubmitted = True
        (rollout,) = one.attempts(1)
    assert rollout.resolved, "partial work at a limit is recorded, and may be graded"
    replayed = RolloutRunner(proven.runner, proven.artifact, proven.verdict, ReplaySolver(store.root), store)
    replayed.grade_unsubmitted = True
    (again,) = replayed.attempts(1)
    assert again.patch_sha256 == rollout.patch_sha256


def open_model_of(tmp_path: Path) -> Any:
    path = tmp_path / "replies.json"
    path.write_text('["hello", {"content": "", "tool_calls": [{"name": "bash", "arguments": {"command": "ls"}}]}]')
    return open_model(f"scripted:{path}")
