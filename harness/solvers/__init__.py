"""Solvers: a buggy tree and a specification in, a patch out; with a model, or by search without one."""

from __future__ import annotations

from harness.agents.attempt import require_room
from harness.agents.limits import RolloutLimits
from harness.messages import Sampling
from harness.models.names import is_model, is_started_late, open_model
from harness.models.spending import Budget
from harness.solvers.model import ModelSolver
from harness.solvers.protocol import Solver
from harness.solvers.replay import ReplaySolver
from harness.solvers.search.solver import SearchSolver
from pytest_ssr.errors import SettingsError
from pytest_ssr.store import Store


def open_solver(
    name: str,
    *,
    tries: int = 0,
    limits: RolloutLimits | None = None,
    sampling: Sampling | None = None,
    budget: Budget | None = None,
    cache: Store | None = None,
) -> Solver:
    """Return a solver by its name: `search`, `replay:PATH`, or a model's; raises SettingsError for what is none.

    Raises SettingsError, too, where a model's context window has no room beside the longest reply.

    tries: candidates of one attempt of `search`; 0: its default. The others are for models.
    """
    if name == "search":
        return SearchSolver(tries) if tries else SearchSolver()
    if name.startswith("replay:"):
        return ReplaySolver.named(name)
    if not is_model(name):
        raise SettingsError(
            f"there is no solver {name!r}; choose search, replay:PATH, or a model: PROVIDER/MODEL, vllm:PATH"
        )
    model = open_model(name, budget=budget, cache=cache)
    role = "tool" if name.startswith(("vllm:", "hosted_vllm/", "scripted:")) else "user"
    solver = ModelSolver(model, limits or RolloutLimits(), sampling or Sampling(), observe_as=role)
    if not is_started_late(name):
        try:
            require_room(model, solver.sampling)
        except BaseException:
            solver.close()
            raise
    return solver
