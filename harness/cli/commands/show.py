"""Run `ssr show`: one artifact, or one rollout step by step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.agents.tools.bash import Bash
from harness.agents.tools.in_text import text_beside_calls
from harness.cli.commands.artifacts import show_artifact
from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.records.attempt import Attempt
from harness.records.messages import Message
from harness.records.trajectory import REWARDS, Step, Trajectory, read_trajectory, texts_of
from harness.rollouts.runner import DONE, ROLLOUTS, TRAJECTORY
from harness.settings.commands import ShowSettings
from pytest_ssr.errors import ArtifactError, SettingsError
from pytest_ssr.records.decoding import json_object
from pytest_ssr.storage.store import Store

_INDENT = "    "


def show(settings: ShowSettings) -> int:
    """Show an artifact or a rollout; return 1 if no step matches --grep."""
    pattern = _pattern(settings.grep)
    path = _find(settings.artifact, settings.store)
    trajectory = path / TRAJECTORY if path.is_dir() else path
    if not trajectory.is_file():
        if pattern is not None:
            raise SettingsError(f"{path} is an artifact; --grep searches the steps of a rollout", option="grep")
        return show_artifact(path, as_json=settings.json)
    data = _described(trajectory)
    if pattern is not None:
        data["steps"] = [step for step in data["steps"] if any(map(pattern.search, texts_of(step)))]
    exit_code = ExitCode.NO if pattern is not None and not data["steps"] else ExitCode.DONE
    if settings.json:
        print(json.dumps(data, indent=1))
        return exit_code
    terminal = Terminal()
    terminal.echo(str(trajectory), "heading")
    for line, kind in _lines(data):
        terminal.echo(line, kind)
    return exit_code


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text is not None else None
    except (re.error, RecursionError, OverflowError) as error:
        raise SettingsError(f"--grep {text!r} is not a regular expression: {error}", option="grep") from None


def _find(name: str, store: Path | None) -> Path:
    """Return the path of an artifact or a rollout from a path, or from an id or its unique prefix in a store.

    Raises SettingsError for a folder that is not a store, ArtifactError if nothing or several things have the name.
    """
    if name and Path(name).exists():
        return Path(name)
    root = store or Path(".ssr")
    kinds = [kind for kind in ("artifacts", ROLLOUTS) if (root / kind).is_dir()]
    if not kinds:
        if store is not None:
            raise SettingsError(f"{root} is not a store: it has no folder `artifacts` or `{ROLLOUTS}`", option="store")
        raise ArtifactError(f"{name} is not a path, and there is no store {root.absolute()}; name it with --store")
    opened = Store(root)
    matches = [("artifacts", i) for i in opened.artifact_ids() if i.startswith(name)] if "artifacts" in kinds else []
    matches += [(ROLLOUTS, each) for each in _rollout_ids(opened) if each.startswith(name)]
    if len(matches) == 1 and name:
        kind, found = matches[0]
        opened.fetch(f"{kind}/{found}")
        return opened.root / kind / found
    if matches and name:
        raise ArtifactError(f"{name} is the beginning of {len(matches)} ids in {opened.root}; give more characters")
    raise ArtifactError(
        f"{name} is neither a path nor the id of an artifact or a rollout in {opened.root.absolute()}; name another "
        "store with --store"
    )


def _rollout_ids(store: Store) -> list[str]:
    """Return the ids of the rollouts that this machine has, or that it gets from the database of a shared store."""
    return sorted({path.parent.name for path in store.fetch(ROLLOUTS) if path.name == TRAJECTORY})


def _described(path: Path) -> dict[str, Any]:
    """Return a rollout as plain data, with its rewards if they are stored beside it."""
    rollout = read_trajectory(path)
    recorded = _object(path.parent / REWARDS)
    attempt = Attempt.from_json(_object(path.parent / f"{DONE}.json"))
    rewards = recorded.get("rewards")
    found = _steps(rollout, rewards if isinstance(rewards, list) else [])
    steps = [{"number": number, **step} for number, step in enumerate(found, 1)]
    header = {name: value for name, value in rollout.header().items() if name not in ("schema", "tools")}
    data = {"path": str(path), **header, "steps": steps, **rollout.ending()}
    if attempt is not None:
        data |= {"reward": attempt.reward, "resolved": attempt.verdict, "reason": attempt.reason.text}
    elif recorded:
        data |= {name: recorded.get(name) for name in ("reward", "success", "reason")}
    return data


def _object(path: Path) -> dict[str, Any]:
    try:
        return json_object(path.read_bytes()) or {}
    except OSError:
        return {}


def _steps(rollout: Trajectory, rewards: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the steps of a rollout; a reply with several calls has several, of which the last has the reward."""
    by_call: dict[int, list[Step]] = {}
    for step in rollout.steps:
        by_call.setdefault(step.call, []).append(step)
    for number, call in enumerate(rollout.calls):
        reply = _message(rollout, call.assistant_index)
        is_text = not reply.tool_calls and all(step.kind != "format-error" for step in by_call.get(call.i, ()))
        thought = {
            "reasoning": reply.reasoning,
            "thought": text_beside_calls(reply.content) if is_text else reply.content.strip(),
        }
        reward = {"reward": rewards[number]} if number < len(rewards) else {}
        taken = [_step(rollout, step) for step in by_call.get(call.i, ())]
        if not taken:
            calls = [{"tool": each.name, "arguments": dict(each.arguments)} for each in reply.tool_calls]
            taken = [*calls] or [{"tool": "", "arguments": {}}]
        for index, fields in enumerate(taken):
            yield {
                "call": call.i,
                **(thought if index == 0 else {}),
                **fields,
                **(reward if index == len(taken) - 1 else {}),
            }


def _step(rollout: Trajectory, step: Step) -> dict[str, Any]:
    return {
        "kind": step.kind,
        "tool": step.tool,
        "arguments": dict(step.arguments),
        "observation": _message(rollout, step.observation_index).content,
        "exit_code": step.exit_code,
        "limit": step.limit,
    }


def _message(rollout: Trajectory, index: int) -> Message:
    """Return a message; an empty one for an index that the file does not have."""
    return rollout.messages[index] if 0 <= index < len(rollout.messages) else Message("", "")


def _lines(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines of a rollout with their kinds."""
    yield f"{data['role']} {data['model']}, task {data['task_id']}, attempt {data['attempt']}", ""
    for step in data["steps"]:
        yield "", ""
        yield f"step {step['number']}", "heading"
        yield from _part("reasoning", step.get("reasoning", ""))
        yield from _part("thought", step.get("thought", ""))
        arguments = step["arguments"]
        is_command = step["tool"] == Bash.name and set(arguments) == {"command"}
        text = str(arguments["command"]) if is_command else json.dumps(arguments, ensure_ascii=False)
        yield from _part(f"action: {step['tool']}", text) if step["tool"] else ()
        yield from _part("observation", step.get("observation", ""))
        if step.get("reward") is not None:
            yield f"reward: {step['reward']:g}", ""
    yield "", ""
    ending = f"{data['exit_reason']}: {data['detail']}" if data["detail"] else str(data["exit_reason"])
    yield f"end: {ending}", "heading"
    if data.get("reward") is not None:
        yield f"reward: {data['reward']:g}", ""
    if data.get("reason"):
        yield f"result: {data['reason']}", ""


def _part(title: str, text: str) -> Iterator[tuple[str, str]]:
    if text:
        yield f"{title}:", ""
        yield from ((f"{_INDENT}{line}", "") for line in text.rstrip("\n").split("\n"))
