"""One attempt of an agent, whatever its role, from the check of its settings to the end of its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace

from harness.agents.desk import Desk
from harness.agents.loop import Agent, closing
from harness.agents.tools.protocol import ToolBundle, schema_of
from harness.messages import SYSTEM, USER, Message, Sampling
from harness.models.protocol import Model, ToolSchema
from harness.trajectory import Journal, Trajectory
from pytest_ssr.errors import SettingsError


def attempted(
    agent: Agent,
    journal: Journal,
    desk: Callable[[], AbstractContextManager[Desk]],
    *,
    system: str,
    task: Callable[[Desk], str],
    bundles: Sequence[ToolBundle] = (),
) -> Trajectory:
    """Let an agent make one attempt and return its record, which has an end whatever happens.

    desk: opens where the agent works. task: says what is to be done there. bundles: tools that are installed there
    first. Raises SettingsError, before anything is opened, where no rollout can be made with the agent's settings;
    BudgetSpentError when the run's budget is spent.
    """
    tools = [schema_of(t) for t in agent.tools]
    journal.describe(
        tools=tools, sampling=asdict(agent.sampling), limits=asdict(agent.limits), observe_as=agent.observe_as
    )
    with closing(journal):
        require_room(agent.model, agent.sampling, system=system, tools=tools)
        own = replace(agent, model=agent.model.session(journal.trajectory.rollout_id))
        with desk() as opened:
            for bundle in bundles:
                bundle.install(opened)
            own.run(system, task(opened), opened, journal)
    return journal.trajectory


def require_room(model: Model, sampling: Sampling, *, system: str = "", tools: Sequence[ToolSchema] = ()) -> None:
    """Raise SettingsError where a model's context window has no room for any task beside the longest reply.

    system, tools: what every prompt holds. Raises ModelError where a model that has to be started does not start.
    """
    window, most = model.context_tokens, sampling.max_tokens
    if most >= window:
        raise SettingsError(
            f"max_tokens is {most}, and {model.name} takes {window} tokens for prompt and reply together: nothing is "
            "left for a prompt; choose a smaller max_tokens, or a model with a larger context window"
        )
    least = model.count([Message(SYSTEM, system), Message(USER, "")], tools=tools) if system else 0
    if least > window - most:
        raise SettingsError(
            f"{model.name} takes {window} tokens for prompt and reply together; with max_tokens {most} that leaves "
            f"{window - most} for a prompt, and its instructions and tools alone are {least}; choose a smaller "
            "max_tokens, or a model with a larger context window"
        )
