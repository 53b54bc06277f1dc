"""Run one attempt of an agent of either role, from the check of its settings to the end of its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace

from harness.agents.loop import Agent, record_end
from harness.agents.tools.protocol import ToolBundle
from harness.agents.workspace import Workspace
from harness.models.protocol import Model, ToolSchema, passes_tools, served_model_of
from harness.records.messages import SYSTEM, USER, Message, Sampling
from harness.records.trajectory import Journal, Trajectory
from pytest_ssr.errors import SettingsError


def run_attempt(
    agent: Agent,
    journal: Journal,
    open_workspace: Callable[[], AbstractContextManager[Workspace]],
    *,
    system: str,
    task: Callable[[Workspace], str],
    bundles: Sequence[ToolBundle] = (),
) -> Trajectory:
    """Run one attempt of an agent and return its record, which is always complete with an end.

    open_workspace: opens the workspace of the attempt. task: returns the task's prompt for a workspace. bundles: tools
    to install in the workspace first. Raises SettingsError, before anything is opened, if the agent's settings allow
    no rollout; BudgetSpentError when the run's budget is spent.
    """
    with record_end(journal):
        if not passes_tools(agent.model):
            agent = agent.with_tools_in_text()
    journal.describe(
        tools=agent.schemas,
        sampling=asdict(agent.sampling),
        limits=asdict(agent.limits),
        observe_as=agent.observe_as,
        served_model=served_model_of(agent.model),
    )
    with record_end(journal):
        require_room(agent.model, agent.sampling, system=agent.system_prompt(system), tools=agent.schemas)
        own = replace(agent, model=agent.model.session(journal.trajectory.rollout_id))
        with open_workspace() as workspace:
            for bundle in bundles:
                bundle.install(workspace)
            own.run(system, task(workspace), workspace, journal)
    return journal.trajectory


def require_room(model: Model, sampling: Sampling, *, system: str = "", tools: Sequence[ToolSchema] = ()) -> None:
    """Raise SettingsError if a model's context window has no room for a task next to the longest reply.

    system, tools: the fixed parts of every prompt. Raises ModelError if a model server has to be started and does not
    start.
    """
    window, reply_tokens = model.context_tokens, sampling.max_tokens
    if reply_tokens >= window:
        raise SettingsError(
            f"max_tokens is {reply_tokens}, and the context window of {model.name} has {window} tokens: no room is "
            "left for a prompt; choose a smaller max_tokens, or a model with a larger context window"
        )
    fixed_tokens = model.count([Message(SYSTEM, system), Message(USER, "")], tools=tools) if system else 0
    if fixed_tokens > window - reply_tokens:
        raise SettingsError(
            f"the context window of {model.name} has {window} tokens; max_tokens {reply_tokens} leaves "
            f"{window - reply_tokens} of them for a prompt, and its instructions and tools alone need {fixed_tokens}; "
            "choose a smaller max_tokens, or a model with a larger context window"
        )
