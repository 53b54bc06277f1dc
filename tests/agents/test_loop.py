"""The loop always ends with the right reason and a trajectory, whatever the model does."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.agents.attempt import run_attempt
from harness.agents.limits import RolloutLimits
from harness.agents.loop import Agent
from harness.agents.tools.bash import Bash
from harness.agents.tools.bundles import BundledTool
from harness.agents.tools.editor import Editor
from harness.agents.tools.protocol import Observation, argument_problem
from harness.agents.tools.submit import Submit
from harness.agents.workspace import Workspace
from harness.models.scripted import ScriptedModel
from harness.records.messages import ASSISTANT, SYSTEM, TOOL, USER, Message, Reply, Sampling, ToolCall, characters
from harness.records.trajectory import ExitReason, Journal, Trajectory, read_trajectory
from pytest_ssr.errors import ContextError, ModelError, SandboxError
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.protocol import Limits


@pytest.fixture
def workspace(tmp_path: Path, calculator: Mapping[str, str]) -> Iterator[Workspace]:
    for name, text in calculator.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    provider = load_provider("process")
    with provider.open(tmp_path / "project", mount_at="/p") as sandbox:
        yield Workspace(sandbox, Limits(wall_s=20))


def call(name: str, n: int = 0, **arguments: Any) -> Message:
    return Message(ASSISTANT, "", (ToolCall.parse(f"c{n}", name, json.dumps(arguments)),))


def bash(command: str, n: int = 0) -> Message:
    return call("bash", n, command=command)


SUBMIT = call("submit")


def agent(*replies: Message, limits: RolloutLimits | None = None, **settings: Any) -> Agent:
    submit = Submit("hand in", lambda workspace: Observation("handed in", 0, done=True, result={"patch": "p"}))
    model = ScriptedModel("scripted:test", replies)
    return Agent(model, [Bash(), Editor(), submit], limits or RolloutLimits(), Sampling(max_tokens=100), **settings)


def run(agent_under_test: Agent, workspace: Workspace, path: Path | None = None) -> Trajectory:
    journal = Journal(Trajectory("r", "t", "solver", 0, agent_under_test.model.name), path)
    return agent_under_test.run("be brief", "repair it", workspace, journal)


def test_a_rollout_is_recorded_completely(workspace: Workspace, tmp_path: Path) -> None:
    done = run(agent(bash("echo hello; exit 3"), SUBMIT), workspace, tmp_path / "a" / "trajectory.jsonl")
    assert done.exit_reason is ExitReason.SUBMITTED
    assert done.status == "completed"
    assert done.result == {"patch": "p"}
    assert [m.role for m in done.messages] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert done.messages[3].content == "hello\n[exit status 3]"
    assert done.messages[3].tool_call_id == "c0"
    assert [(s.kind, s.tool, s.exit_code, s.call) for s in done.steps] == [
        ("tool", "bash", 3, 0),
        ("submit", "submit", 0, 1),
    ]
    assert [c.sent for c in done.calls] == [(0, 1), (0, 1, 2, 3)]
    assert read_trajectory(tmp_path / "a" / "trajectory.jsonl") == done
    assert done.header()["schema"] == "ssr.rollout/1"


def test_a_truncated_trajectory_is_read_as_far_as_it_goes(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "trajectory.jsonl"
    run(agent(bash("echo hello"), SUBMIT), workspace, path)
    lines = path.read_text().splitlines(keepends=True)
    for cut in range(1, len(lines)):
        path.write_text("".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
        read = read_trajectory(path)
        assert read.exit_reason is ExitReason.INTERRUPTED
        assert read.status == "aborted"
    path.write_text("".join(lines[:2]) + "garbage\n" + lines[2])
    with pytest.raises(Exception, match=r"line 3 is not a line of a ssr\.rollout/1"):
        read_trajectory(path)


def test_a_command_starts_where_the_last_one_ended(workspace: Workspace) -> None:
    done = run(agent(bash("cd tests"), bash("ls; cd /nowhere"), bash("pwd; kill -9 $$"), bash("ls"), SUBMIT), workspace)
    shown = [m.content for m in done.messages if m.role == TOOL]
    assert shown[1].startswith("test_calc.py\n")
    assert shown[2].endswith("/tests\n[exit status -9]")
    assert shown[3].startswith("test_calc.py\n"), "a killed shell loses nothing but itself"


def test_text_blocks_work_like_tool_calls(workspace: Workspace) -> None:
    replies = [
        "I look first.\n```bash\necho hello\n```\n",
        '```editor\n{"command": "view", "path": "calc.py", "view_range": [4, 4]}\n```',
        "```submit\n```",
    ]
    done = run(agent(*(Message(ASSISTANT, text) for text in replies)), workspace)
    assert done.exit_reason is ExitReason.SUBMITTED
    assert [m.content for m in done.messages if m.role == TOOL][:2] == [
        "hello\n[exit status 0]",
        "     4\tdef add(a, b):",
    ]
    assert not any(m.tool_calls for m in done.messages), "the model's messages are unchanged"
    users = run(agent(*(Message(ASSISTANT, text) for text in replies), observe_as="user"), workspace)
    assert [m.role for m in users.messages][2:] == ["assistant", "user"] * 3


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("I look first: <execute> ls tests </execute>", "ls tests"),
        ("<execute>\ncd tests\nls\n</execute>", "cd tests\nls"),
        ("```bash\n<execute>ls</execute>\n```", "ls"),
        ("<execute>\n```bash\nls\n```\n</execute>", "ls"),
        ("```bash\necho '<execute>ls</execute>'\n```", "echo '<execute>ls</execute>'"),
        ("<execute>cat <<E\n```bash\nls\n```\nE\n</execute>", "cat <<E\n```bash\nls\n```\nE"),
    ],
)
def test_a_command_between_execute_tags_is_run(workspace: Workspace, text: str, command: str) -> None:
    done = run(agent(Message(ASSISTANT, text), SUBMIT), workspace)
    assert [(s.kind, s.tool, s.arguments, s.exit_code) for s in done.steps][:1] == [
        ("tool", "bash", {"command": command}, 0)
    ]
    assert done.messages[2] == Message(ASSISTANT, text), "the model's message is unchanged"


def test_execute_tags_without_a_shell_are_no_call(workspace: Workspace) -> None:
    without = replace(agent(Message(ASSISTANT, "<execute>ls</execute>"), SUBMIT), tools=agent().tools[1:])
    assert [s.kind for s in run(without, workspace).steps] == ["format-error", "submit"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I think it is done.", "no tool was called"),
        ("```bash\nls\n```\nand\n```bash\npwd\n```", "there are 2 blocks in one reply"),
        ("```python\nprint()\n```", "no tool was called"),
        ("```bash\nnever closed", "no tool was called"),
        ("<execute>never closed", "no tool was called"),
        ("<execute>ls</execute> and <execute>pwd</execute>", "there are 2 blocks in one reply"),
        ("<execute>ls</execute>\n```bash\npwd\n```", "there are 2 blocks in one reply"),
        ("```bash\n<execute>ls</execute>\n<execute>pwd</execute>\n```", "there are 2 blocks in one reply"),
    ],
)
def test_a_reply_without_a_tool_call_is_a_step_and_answered(workspace: Workspace, text: str, expected: str) -> None:
    done = run(agent(Message(ASSISTANT, text), SUBMIT), workspace)
    assert done.exit_reason is ExitReason.SUBMITTED
    assert [s.kind for s in done.steps] == ["format-error", "submit"]
    assert [s.id for s in done.steps] == [0, 1]
    assert expected in done.messages[done.steps[0].observation_index].content


@pytest.mark.parametrize(
    ("replies", "limits", "reason", "status"),
    [
        ([Message(ASSISTANT, "no")] * 9, RolloutLimits(format_errors=3), ExitReason.FORMAT, "failed"),
        ([call("fly")] * 9, RolloutLimits(format_errors=3), ExitReason.FORMAT, "failed"),
        ([bash("true")] * 9, RolloutLimits(repeats=4), ExitReason.LOOP, "failed"),
        ([bash("true"), bash("echo a")] * 4, RolloutLimits(repeats=4), ExitReason.LOOP, "failed"),
        ([bash("true"), bash("echo a"), bash("echo b")] * 3, RolloutLimits(repeats=3), ExitReason.LOOP, "failed"),
        (
            [*[bash("true"), bash("echo a")] * 3, bash("echo c"), SUBMIT],
            RolloutLimits(repeats=4),
            ExitReason.SUBMITTED,
            "completed",
        ),
        ([bash(f"echo {n}") for n in range(9)], RolloutLimits(steps=5), ExitReason.STEP_LIMIT, "truncated"),
        ([bash("sleep 1; date")] * 9, RolloutLimits(wall_s=1.5), ExitReason.TIME_LIMIT, "truncated"),
        ([bash("true")], RolloutLimits(), ExitReason.MODEL, "aborted"),
    ],
)
def test_every_rollout_ends(
    workspace: Workspace, replies: list[Message], limits: RolloutLimits, reason: ExitReason, status: str
) -> None:
    done = run(agent(*replies, limits=limits), workspace)
    assert (done.exit_reason, done.status) == (reason, status)
    assert len(done.calls) <= 9


class Priced(ScriptedModel):
    """Each reply has tokens and a price."""

    def reply(self, *arguments: Any, **named: Any) -> Reply:
        from harness.records.messages import Usage

        return replace(super().reply(*arguments, **named), usage=Usage(100, 10), cost_usd=0.3)


@pytest.mark.parametrize(
    ("limits", "reason", "calls"),
    [
        (RolloutLimits(tokens=250), ExitReason.TOKEN_LIMIT, 3),
        (RolloutLimits(usd=0.5), ExitReason.COST_LIMIT, 2),
    ],
)
def test_tokens_and_cost_are_limited(
    workspace: Workspace, limits: RolloutLimits, reason: ExitReason, calls: int
) -> None:
    agent_under_test = agent(limits=limits)
    model = Priced("scripted:test", [bash(f"echo {n}") for n in range(9)])
    done = run(Agent(model, agent_under_test.tools, limits), workspace)
    assert (done.exit_reason, len(done.calls)) == (reason, calls)


@pytest.mark.parametrize(
    ("command", "limit"),
    [("sleep 60", "wall time"), ("yes", "output"), ("cat /dev/zero | head -c 300000000 | tr '\\0' x", "output")],
)
def test_a_command_past_a_limit_is_ended_and_reported(workspace: Workspace, command: str, limit: str) -> None:
    done = run(agent(bash(command), bash("echo still here", 1), SUBMIT, limits=RolloutLimits(command_s=3)), workspace)
    assert done.steps[0].limit == limit
    assert f"[ended: it passed the limit on {limit}" in done.messages[3].content
    assert len(done.messages[3].content) < 11_000
    assert done.messages[5].content.startswith("still here")
    assert done.exit_reason is ExitReason.SUBMITTED


def test_a_long_output_shows_head_and_tail(workspace: Workspace) -> None:
    done = run(agent(bash("seq 1 100000"), SUBMIT, limits=RolloutLimits(output_chars=200)), workspace)
    shown = done.messages[3].content
    assert shown.startswith("1\n2\n")
    assert shown.endswith("100000\n[exit status 0]")
    assert f"[... {done.steps[0].elided_chars} characters left out ...]" in shown


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (bash("true\0"), "cannot contain NUL or lone surrogates"),
        (bash("true \udc80"), "cannot contain NUL or lone surrogates"),
        (bash(f"true {'x' * 200_000}"), "at most 100000 bytes, and this one has 200005"),
        (call("greet", whom="a\0"), "cannot contain NUL or lone surrogates"),
        (call("greet", whom="x" * 200_000), "at most 100000 bytes"),
        (call("editor", command="view", path="/etc/passwd"), "/etc/passwd"),
    ],
)
def test_an_impossible_action_is_not_a_sandbox_failure(workspace: Workspace, action: Message, expected: str) -> None:
    schema = {"type": "object", "properties": {"whom": {"type": "string"}}}
    greet = BundledTool("greet", "", schema, "greet <whom>", "bundle")
    agent_under_test = agent(bash(f"mkdir -p {workspace.sandbox.scratch}/.ssr-alive/full"), action, SUBMIT)
    done = run(replace(agent_under_test, tools=[*agent_under_test.tools, greet]), workspace)
    assert done.exit_reason is ExitReason.SUBMITTED, done.detail
    assert expected in done.messages[5].content


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("{oops", "the arguments are not JSON"),
        ("[1]", "the arguments are not a JSON object"),
        ('{"cmd": "ls"}', "the argument 'command' is missing"),
        ('{"command": "ls", "shell": "zsh"}', "'shell' is not an argument"),
        ('{"command": 3}', "the argument 'command' must be of type string"),
    ],
)
def test_a_malformed_call_is_answered(workspace: Workspace, arguments: str, expected: str) -> None:
    bad = Message(ASSISTANT, "", (ToolCall.parse("c", "bash", arguments),))
    done = run(agent(bad, SUBMIT), workspace)
    assert expected in done.messages[3].content
    assert done.messages[3].tool_call_id == "c"
    assert done.exit_reason is ExitReason.SUBMITTED


def test_a_lone_surrogate_is_escaped_before_it_is_sent(workspace: Workspace) -> None:
    bad = Message(ASSISTANT, "", (ToolCall.parse("c", "editor", r'{"command": "view", "path": "a\udc80"}'),))
    done = run(agent(bad, SUBMIT), workspace)
    assert done.messages[3].content == r"a\udc80 is not a file"
    assert done.exit_reason is ExitReason.SUBMITTED


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("kind", ["integer", "number"])
def test_a_boolean_is_not_a_number(value: bool, kind: str) -> None:
    schema = {"type": "object", "properties": {"line": {"type": kind}}}
    tool = BundledTool("zoom", "", schema, "zoom <line>", "bundle")
    assert argument_problem(tool, {"line": value}) == f"the argument 'line' must be of type {kind}"
    assert argument_problem(tool, {"line": int(value)}) == ""


def test_an_enum_of_numbers_is_reported() -> None:
    schema = {"type": "object", "properties": {"level": {"type": "integer", "enum": [1, 2]}}}
    tool = BundledTool("zoom", "", schema, "zoom <level>", "bundle")
    assert argument_problem(tool, {"level": 3}) == "the argument 'level' must be one of 1, 2"


class Broken:
    """A tool whose sandbox breaks."""

    name, description, parameters = "break", "", {"type": "object", "properties": {}}

    def use(self, arguments: Mapping[str, Any], workspace: Workspace) -> Observation:
        raise SandboxError("the container is gone")


class Refusing(ScriptedModel):
    """A server that refuses prompts of more than some characters, and gives their sizes if it counts."""

    def __init__(self, name: str, replies: list[Message], limit: int, *, counts: bool = False) -> None:
        super().__init__(name, replies)
        self.limit, self.counts, self.refused = limit, counts, 0

    def reply(self, messages: Sequence[Message], **named: Any) -> Reply:
        if (size := characters(messages)) > self.limit:
            self.refused += 1
            sizes = {"prompt_tokens": size, "limit_tokens": self.limit} if self.counts else {}
            raise ContextError("too long", **sizes)
        return super().reply(messages, **named)


@pytest.mark.parametrize(("counts", "most_refused"), [(True, 1), (False, 6)])
def test_the_history_is_cut_to_what_a_server_accepts(workspace: Workspace, counts: bool, most_refused: int) -> None:
    long = [bash(f"echo {n}; seq 200 300", n) for n in range(5)]
    model = Refusing("s", [*long, SUBMIT], 1600, counts=counts)
    done = run(Agent(model, agent().tools, sampling=Sampling(max_tokens=1)), workspace)
    assert done.exit_reason is ExitReason.SUBMITTED
    assert 1 <= model.refused <= most_refused
    assert any(isinstance(part, Mapping) for part in done.calls[-1].sent), "turns are left out"


def test_a_model_that_sees_no_tools_is_told_them_in_text(workspace: Workspace) -> None:
    class Toolless(ScriptedModel):
        passes_tools = False

        def reply(self, messages: Sequence[Message], *, tools: Any, **named: Any) -> Reply:
            assert not tools
            return super().reply(messages, tools=tools, **named)

    replies = [Message(ASSISTANT, "```bash\necho hi\n```"), Message(ASSISTANT, "```submit\n{}\n```")]
    journal = Journal(Trajectory("r", "t", "solver", 0, "s"))
    done = run_attempt(
        Agent(Toolless("s", replies), agent().tools),
        journal,
        lambda: contextlib.nullcontext(workspace),
        system="do it",
        task=lambda _: "the task",
    )
    assert done.exit_reason is ExitReason.SUBMITTED
    assert [s.tool for s in done.steps] == ["bash", "submit"]
    assert all(f"`{tool.name}`" in done.messages[0].content for tool in agent().tools)
    assert done.tools == []
    assert [m.role for m in done.messages] == [SYSTEM, USER, ASSISTANT, USER, ASSISTANT, USER]


def test_infrastructure_failures_abort(workspace: Workspace) -> None:
    agent_under_test = agent()
    done = run(Agent(ScriptedModel("s", [call("break")]), [*agent_under_test.tools, Broken()]), workspace)
    assert (done.exit_reason, done.status, done.detail) == (ExitReason.INFRA, "aborted", "the container is gone")
    done = run(Agent(Refusing("s", [SUBMIT], 1), agent_under_test.tools), workspace)
    assert (done.exit_reason, done.status) == (ExitReason.MODEL, "aborted"), "the task fits by the estimate"


def test_an_unexpected_error_costs_one_rollout_and_is_named(workspace: Workspace, tmp_path: Path) -> None:
    class Falling(ScriptedModel):
        def reply(self, *arguments: Any, **named: Any) -> Reply:
            raise RuntimeError("the moon is down")

    path = tmp_path / "trajectory.jsonl"
    done = run(Agent(Falling("s", []), agent().tools), workspace, path)
    assert (done.exit_reason, done.status) == (ExitReason.INFRA, "aborted")
    assert done.detail.startswith("RuntimeError: the moon is down (test_loop.py, line ")
    assert read_trajectory(path).detail == done.detail


def test_a_crash_leaves_the_trajectory(workspace: Workspace, tmp_path: Path) -> None:
    class Crashing(ScriptedModel):
        def reply(self, *arguments: Any, **named: Any) -> Reply:
            if len(self.seen) == 1:
                raise KeyboardInterrupt
            return super().reply(*arguments, **named)

    path = tmp_path / "trajectory.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(Agent(Crashing("s", [bash("echo a")]), agent().tools), workspace, path)
    read = read_trajectory(path)
    assert read.exit_reason is ExitReason.INTERRUPTED
    assert read.messages[-1].content == "a\n[exit status 0]"


def test_each_request_has_its_own_seed(workspace: Workspace) -> None:
    seeds: list[int | None] = []

    class Watching(ScriptedModel):
        def reply(self, messages: Any, *, tools: Any, sampling: Sampling) -> Reply:
            seeds.append(sampling.seed)
            return super().reply(messages, tools=tools, sampling=sampling)

    agent_under_test = agent()
    run(Agent(Watching("s", [bash("true"), SUBMIT]), agent_under_test.tools, sampling=Sampling(seed=40)), workspace)
    assert seeds == [40, 41]


def test_a_model_without_replies_raises() -> None:
    with pytest.raises(ModelError, match="scripted:x has no more replies after 0"):
        ScriptedModel("scripted:x", []).reply([], tools=(), sampling=Sampling())
