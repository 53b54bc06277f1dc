"""Create solvers, injectors and judges from names and options, and close all of their models."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.agents import tools
from harness.agents.attempt import require_room
from harness.agents.limits import RolloutLimits
from harness.agents.process_reward import ProcessReward
from harness.agents.prompts import DEFAULT, Prompts
from harness.agents.tools.protocol import ToolBundle
from harness.injectors.campaign import ArtifactInjector
from harness.injectors.external import PREFIX, ExternalInjector
from harness.injectors.model import STRATEGIES, ModelInjector
from harness.injectors.replay import ReplayInjector
from harness.injectors.single_reply import STRATEGIES as SINGLE_REPLY
from harness.injectors.single_reply import SingleReplyInjector
from harness.local_models.sampling import open_sampler
from harness.models.budget import Budget
from harness.models.factory import NAMED, PLUGIN, entry_of, is_model, is_started_late, open_model, suggestion
from harness.models.middleware import CancellableModel
from harness.models.protocol import Model, failure_of, label_of, remarks_on
from harness.models.registry import Registry
from harness.models.timeouts import READY_S, TIMEOUT_S
from harness.records.messages import Sampling
from harness.solvers.mini import PREFIX as MINI
from harness.solvers.mini import is_mini
from harness.solvers.mini.interpreter import mini_python
from harness.solvers.mini.solver import MiniSolver
from harness.solvers.model import ModelSolver
from harness.solvers.protocol import Solver
from harness.solvers.replay import ReplaySolver
from harness.solvers.search.policy import has_generator, load_policy
from harness.solvers.search.solver import SEARCH, SearchSolver, is_search
from harness.solvers.submission import SubmissionSettings
from harness.solvers.writer.mixed import MixedSolver, split_writer
from harness.solvers.writer.solver import LM, WriterSolver, is_writer
from pytest_ssr.errors import MissingExtraError, ModelError, SettingsError
from pytest_ssr.extensions import Extensions
from pytest_ssr.storage.store import Store

_SHIPPED_FOLDER = Path(tools.__file__).parent / "shipped"
SHIPPED = ("repository",)
"""The names of the tool bundles that ship."""
_WITH_TOOL_ROLE = ("vllm:", "hosted_vllm/", "scripted:")


def _policy_parts(name: str) -> tuple[Path, str]:
    """Return the folder and the language model in `search:policy=PATH` or `search:policy=PATH,lm=MODEL`.

    Raises SettingsError for any other form.
    """
    path, _, model = name.removeprefix(f"{SEARCH}:policy=").partition(",lm=")
    if name == path or not path:
        raise SettingsError(f"{name!r} is not a solver; a learned policy is named search:policy=PATH", option="solver")
    return Path(path), model


@dataclass(slots=True)
class PlayerFactory:
    """Opens models by name and closes them on exit; roles with the same name share one model."""

    limits: RolloutLimits = RolloutLimits()
    sampling: Sampling = Sampling()
    budget: Budget = field(default_factory=Budget)
    """Shared by all roles."""
    cache: Store | None = None
    """Stores replies: a repeated request is free."""
    url: str = ""
    """Base URL of the server for a model named PROVIDER/MODEL; empty for the provider's own."""
    context_tokens: int = 0
    """Tokens of a prompt with its reply; 0 for the server's limit."""
    timeout_s: float = TIMEOUT_S
    """Seconds until a reply must be complete."""
    ready_s: float = READY_S
    """Seconds until a server started here must be ready."""
    vllm_arguments: Sequence[str] = ()
    """Additional arguments for `vllm serve`."""
    bundles: Sequence[ToolBundle] = ()
    """Additional tools for both roles."""
    prompts: Prompts = DEFAULT
    """The prompts of both roles."""
    mini_python: Path | None = None
    """The interpreter of mini-swe-agent's own environment."""
    store: Store | None = None
    """Stores environments that were built."""
    extensions: Extensions = field(default_factory=Extensions)
    """Have the solvers and models of plugins."""
    registry: Registry = field(default_factory=dict)
    """Models that are named `model:NAME`, and prices."""
    _models: dict[str, Model] = field(default_factory=dict)
    _remarked: set[str] = field(default_factory=set)

    def model(self, name: str) -> Model:
        """Return the model of a name; raises SettingsError or MissingExtraError if it cannot be opened."""
        if is_mini(name):
            raise SettingsError(f"{name}: mini-swe-agent is a solver, for --solver alone")
        if name not in self._models:
            model = open_model(
                name,
                budget=self.budget,
                cache=self.cache,
                url=self.url,
                context_tokens=self.context_tokens,
                timeout_s=self.timeout_s,
                ready_s=self.ready_s,
                vllm_arguments=self.vllm_arguments,
                offered=self.extensions.models() if name.startswith(PLUGIN) else None,
                registry=self.registry,
            )
            self._models[name] = CancellableModel(model)
        return self._models[name]

    def _meant(self, name: str) -> str:
        """Return what a name of the registry stands for; other names as they are."""
        return entry_of(name.removeprefix(NAMED), self.registry).model if name.startswith(NAMED) else name

    def remarks(self) -> list[str]:
        """Return a line for each opened model whose server lacks something: what, and what is done without it.

        Each line is returned once. A server that is started at the first query can be asked only after that.
        """
        models = self._models.values()
        lines = [f"{model.name} ({label_of(model)}): {text}" for model in models if (text := remarks_on(model))]
        new = [line for line in lines if line not in self._remarked]
        self._remarked.update(new)
        return new

    def failures(self) -> list[ModelError]:
        """Return why requests to opened models cannot succeed; nothing with a cache, which may have all replies."""
        if self.cache is not None:
            return []
        found = {
            name: failure_of(model) for name, model in self._models.items() if not is_started_late(self._meant(name))
        }
        return [failure for failure in found.values() if failure is not None]

    def solver(
        self,
        name: str,
        *,
        tries: int = 0,
        wall_s: float | None = None,
        submission: SubmissionSettings = SubmissionSettings(),
        shows_failure: bool = True,
    ) -> Solver:
        """Return a solver: `search`, `search:policy=PATH`, `search:writer=MODEL`, `lm:MODEL`, `replay:PATH`,
        `mini-swe-agent:MODEL`, a model, or one of a plugin.

        tries: candidates for one attempt of `search` or `lm:MODEL`; 0 for the default. wall_s: seconds for one attempt
        of these; None for the default. submission: how a model submits. shows_failure: whether the prompt of a model
        that writes repairs tells of a failing test. Raises SettingsError for an unknown solver, MissingExtraError if
        what it needs is not installed.
        """
        if is_search(name):
            default, policy = SearchSolver(), None
            search, writer = split_writer(name)
            if search != SEARCH:
                policy = load_policy(*_policy_parts(search))
            limits = tries or default.tries, default.wall_s if wall_s is None else wall_s
            if writer:
                sampler = open_sampler(writer, option="solver")
                return MixedSolver(*limits, name=name, policy=policy, sampler=sampler, shows_failure=shows_failure)
            return SearchSolver(*limits, name=name, policy=policy)
        if is_writer(name):
            return self._writer(name, tries, wall_s, shows_failure=shows_failure)
        if tries:
            raise SettingsError(f"--tries is for the solvers search and lm:MODEL, not for {name}", option="tries")
        if name.startswith("replay:"):
            return ReplaySolver.named(name)
        if is_mini(name):
            return self._mini(name.removeprefix(MINI))
        if not is_model(name):
            return self._offered(name)
        return ModelSolver(
            self._with_room(name),
            self.limits,
            self.sampling,
            self.bundles,
            _observing(self._meant(name)),
            self.context_tokens,
            submission,
            self.prompts,
        )

    def _writer(self, name: str, tries: int, wall_s: float | None, *, shows_failure: bool) -> WriterSolver:
        """Return a model on this machine that writes repairs; raises SettingsError or MissingExtraError without it."""
        model = name.removeprefix(f"{LM}:")
        if model in (name, ""):
            raise SettingsError(
                f"{name!r} is not a solver; a language model on this machine is named lm:MODEL", option="solver"
            )
        solver = WriterSolver(sampler=open_sampler(model, option="solver"), name=name, shows_failure=shows_failure)
        solver.tries = tries or solver.tries
        solver.wall_s = solver.wall_s if wall_s is None else wall_s
        return solver

    def _offered(self, name: str) -> Solver:
        """Return a solver of a plugin; raises SettingsError if no plugin has one of that name."""
        offered: Mapping[str, Solver] = self.extensions.solvers()
        if name not in offered:
            others = "".join(f", {other}" for other in sorted(offered))
            raise SettingsError(
                f"there is no solver {name!r}; choose search, search:policy=PATH, lm:MODEL, replay:PATH, "
                f"mini-swe-agent:MODEL{others}, or a model: PROVIDER/MODEL, vllm:PATH, model:NAME, "
                f"plugin:NAME{suggestion(name)}"
            )
        return offered[name]

    def _mini(self, model: str) -> MiniSolver:
        """Return mini-swe-agent with a model; raises SettingsError or MissingExtraError if it cannot run here."""
        entry, url = self.registry.get(model), self.url
        if model.startswith(NAMED):
            name, entry = model, entry_of(model.removeprefix(NAMED), self.registry)
            model, url = entry.model, entry.url
            if entry.key or entry.keyless or (entry.url and entry.hidden):
                raise SettingsError(
                    f"{MINI}{name}: mini-swe-agent takes the key from its provider's variable, and in a job models of "
                    "providers alone"
                )
        if "/" not in model or not is_model(model) or model.startswith(("plugin:", "vllm:", "scripted:")):
            raise SettingsError(
                f"{MINI}{model}: mini-swe-agent takes a model as PROVIDER/MODEL: openai/..., hosted_vllm/... with "
                f"--url{suggestion(model)}"
            )
        python, versions = mini_python(self.mini_python, self.store)
        return MiniSolver(
            model,
            python,
            versions,
            self.limits,
            self.sampling,
            self.budget,
            url,
            self.timeout_s,
            price=entry.price if entry is not None else None,
        )

    def injector(
        self, name: str, *, strategy: str = STRATEGIES[-1], rejections: int = 2, store: Path | None = None
    ) -> ArtifactInjector:
        """Return an injector: a model, a recording of one, or existing artifacts.

        store: the folder with the baselines of projects, which strategies with single replies need. Raises
        SettingsError for an unknown strategy, and ArtifactError if there are no artifacts.
        """
        if name.startswith(PREFIX):
            return ExternalInjector.named(name)
        if name.startswith("replay:"):
            return ReplayInjector.named(name)
        if strategy in SINGLE_REPLY and store is not None:
            model = self._with_room(name)
            # Opened last: wrong settings must not leave a store behind.
            return SingleReplyInjector(model, strategy, Store(store), self.sampling, self.prompts)
        return ModelInjector(
            self._with_room(name),
            strategy,
            self.limits,
            self.sampling,
            rejections,
            _observing(self._meant(name)),
            self.bundles,
            self.context_tokens,
            prompts=self.prompts,
        )

    def _with_room(self, name: str) -> Model:
        """Return a model; also raises SettingsError if its context window has no room besides the longest reply."""
        model = self.model(name)
        if not is_started_late(self._meant(name)):
            require_room(model, self.sampling)
        return model

    def judge(self, name: str, **settings: Any) -> ProcessReward:
        """Return a judge that scores steps with a model. settings: fields of ProcessReward."""
        judge = ProcessReward(self.model(name), **settings)
        if not is_started_late(self._meant(name)):
            require_room(judge.model, judge.sampling)
        return judge

    def close(self) -> None:
        """Close all models, even if closing one of them fails."""
        while self._models:
            _, model = self._models.popitem()
            try:
                model.close()
            finally:
                self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_bundles(folders: Sequence[Path]) -> list[ToolBundle]:
    """Return the tool bundles in some folders, or of these names if they ship with this package.

    Raises MissingExtraError if PyYAML is not installed, SettingsError for a folder without a bundle.
    """
    if not folders:
        return []
    if importlib.util.find_spec("yaml") is None:
        raise MissingExtraError("pyyaml", "tools")
    from harness.agents.tools.bundles import Bundle

    return [Bundle.read(_folder_of(folder)) for folder in folders]


def _folder_of(bundle: Path) -> Path:
    if str(bundle) in SHIPPED and not bundle.exists():
        return _SHIPPED_FOLDER / bundle
    if not bundle.exists():
        names = ", ".join(SHIPPED)
        raise SettingsError(f"{bundle} is not a folder; the bundles that ship are: {names}", option="bundles")
    return bundle


def solver_writes_code(name: str) -> bool:
    """Return whether a solver's code or commands may come from a model or from others, live or recorded."""
    search, writer = split_writer(name)
    return not is_search(name) or bool(writer) or (name != SEARCH and has_generator(_policy_parts(search)[0]))


def injector_writes_code(name: str) -> bool:
    """Return whether an injector is not one of operators: a model, a recording of one, or artifacts of others."""
    return is_model(name) or name.startswith(("replay:", PREFIX))


def _observing(name: str) -> str:
    return "tool" if name.startswith(_WITH_TOOL_ROLE) else "user"
