"""Rounds of self-play: bugs injected and proven, solved several times each, graded, rewarded; then the next round.

Everything that is finished is in the store under a name made of what it depends on. A run that is cut off and started
again with the same words finds all of it there and goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.episode import Episode, Rollout
from harness.higher_order import Failed, HigherOrderInjector
from harness.injectors.campaign import ModelCampaign
from harness.injectors.model import ModelInjector
from harness.mixture import Mixture, Table
from harness.rewards import ALPHA, injector_reward
from harness.solvers.protocol import Solver
from harness.solving import PATCH, ROLLOUTS, Solving
from pytest_ssr.attempt import Attempt, AttemptStatus, counted
from pytest_ssr.campaign import Campaign
from pytest_ssr.errors import ArtifactError, ProjectError, SettingsError, StoreError
from pytest_ssr.injectors.protocol import Injector
from pytest_ssr.opening import open_campaign, open_workbench
from pytest_ssr.patch import Patch
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store, key_of

EPISODES = "episodes"
_GIVE_UP_AFTER = 60


@dataclass(frozen=True, slots=True)
class PlaySettings:
    """What a run of self-play is made with."""

    injectors: str
    """Comma-separated, as for `ssr inject`."""
    rounds: int = 1
    count: int = 4
    """Bugs of each project in each round."""
    attempts: int = 8
    seed: int = 0
    jobs: int = 1
    alpha: float = ALPHA
    reward: str = "solve-rate"
    adaptive: bool = True
    """Draw operators and files by what earlier rounds brought."""
    higher_order: int = 1
    """Failed repairs of each bug that are tried as bugs of their own."""
    sandbox: str = "auto"
    python: Path | None = None
    rule: RuleSettings = RuleSettings()

    def __post_init__(self) -> None:
        """Refuse values that make no sense; raises SettingsError naming the option."""
        for name in ("rounds", "attempts", "count", "jobs"):
            if getattr(self, name) < 1:
                raise SettingsError(f"--{name} must be at least 1, not {getattr(self, name)}")
        injector_reward(False, alpha=self.alpha, kind=self.reward)


@dataclass(slots=True)
class Watch:
    """Is told what happens."""

    status: Callable[[str], None] = lambda _: None
    attempt: Callable[[int, str, Attempt], None] = lambda *_: None
    rollout: Callable[[int, Episode, Rollout], None] = lambda *_: None
    episode: Callable[[Episode], None] = lambda _: None


class SelfPlay:
    """Plays rounds over projects."""

    def __init__(
        self,
        projects: Sequence[Path],
        store: Store,
        solver: Solver,
        settings: PlaySettings,
        *,
        load: Callable[[str], list[Injector]],
        injector: ModelInjector | None = None,
        watch: Watch | None = None,
    ) -> None:
        """load: gives injectors by their names. injector: a model that injects in their place."""
        self.projects, self.store, self.solver, self.settings = list(projects), store, solver, settings
        self._load, self._injector, self._watch = load, injector, watch or Watch()
        self._tables = {project: Table(settings.attempts, settings.alpha) for project in self.projects}

    def play(self) -> list[Episode]:
        """Play all rounds and return the episodes in order."""
        episodes: list[Episode] = []
        for number in range(self.settings.rounds):
            told: list[tuple[Path, Episode]] = []
            for project in self.projects:
                for episode in self._round(number, project):
                    episodes.append(episode)
                    told.append((project, episode))
                    self._keep(episode, len(episodes))
                    if episode.valid:
                        self._watch.episode(episode)
            self._learn(told)
        return episodes

    def _keep(self, episode: Episode, number: int) -> None:
        settings = self.settings
        name = f"{number:05d}"
        data = episode.to_json(alpha=settings.alpha, kind=settings.reward)
        self.store.put_record(f"{EPISODES}/{self.key}", name, data)

    @property
    def key(self) -> str:
        """The name of this run in the store."""
        settings = self.settings
        return key_of(
            [str(p.resolve()) for p in self.projects],
            self._injector.key if self._injector is not None else settings.injectors,
            settings.rounds,
            settings.count,
            settings.attempts,
            settings.seed,
            getattr(self.solver, "key", self.solver.name),
            settings.adaptive,
            settings.higher_order,
        )

    def _learn(self, told: Sequence[tuple[Path, Episode]]) -> None:
        for project, episode in told:
            if episode.order > 1:
                continue
            grades = [r.resolved for r in episode.rollouts if r.resolved is not None]
            # An operator that pays in one project is likely to pay in another; a file's name says nothing there.
            for other, table in self._tables.items():
                path = episode.path if other == project else ""
                table.tell(episode.operator, path, valid=episode.valid, solved=sum(grades), graded=len(grades))

    def _round(self, number: int, project: Path) -> Iterator[Episode]:
        settings = self.settings
        campaign, most = self._campaign(number, project)
        try:
            attempts = self._injected(number, campaign, settings.count, most)
            valid = [a for a in attempts if a.status is AttemptStatus.VALID]
            for attempt in attempts:
                if attempt.status is AttemptStatus.REJECTED:
                    yield self._episode(number, campaign, attempt, ())
            episodes = self._solved(number, campaign, valid)
            yield from episodes
        finally:
            campaign.close()
        if settings.higher_order:
            yield from self._second_order(number, project, episodes)

    def _campaign(self, number: int, project: Path) -> tuple[Campaign | ModelCampaign, int]:
        """Return what injects in a round, and how many times it may try: a model as often as bugs are wanted."""
        settings = self.settings
        if self._injector is not None:
            bench = open_workbench(
                project, self.store, settings=settings.rule, sandbox=settings.sandbox, python=settings.python
            )
            seed = int(key_of(settings.seed, number)[:6], 16)
            return ModelCampaign(bench, self.store, self._injector, seed=seed), settings.count
        injectors = self._load(settings.injectors)
        if settings.adaptive:
            injectors = [Mixture(injectors, self._tables[project])]
        return self._open(project, injectors, settings.seed + number), _GIVE_UP_AFTER * settings.count

    def _open(self, project: Path, injectors: Sequence[Injector], seed: int) -> Campaign:
        settings = self.settings
        named = {i.name.replace(",", " "): i for i in injectors}
        return open_campaign(
            project,
            self.store,
            settings=settings.rule,
            injectors=",".join(named),
            extra_injectors=named,
            seed=seed,
            sandbox=settings.sandbox,
            python=settings.python,
        )

    def _injected(self, number: int, campaign: Campaign | ModelCampaign, count: int, most: int) -> list[Attempt]:
        """Try in order, `jobs` at a time, until so many are valid; at most so many times."""
        done: list[Attempt] = []
        following, last = 0, most
        with ThreadPoolExecutor(self.settings.jobs) as pool:
            while following < last:
                several = range(following, min(last, following + self.settings.jobs))
                batch = list(pool.map(campaign.attempt, several))
                following = several.stop
                for attempt in batch:
                    if attempt is None:
                        last = 0
                        continue
                    done.append(attempt)
                    self._watch.attempt(number, campaign.snapshot.project_name, attempt)
                found = counted(done, count)
                valid = sum(a.status is AttemptStatus.VALID for a in found)
                self._watch.status(
                    f"round {number + 1}, {campaign.snapshot.project_name}: {len(done)} candidates, "
                    f"{valid} of {count} bugs"
                )
                if valid >= count:
                    break
        wanted = counted(done, count)
        campaign.settle(wanted, done)
        return wanted

    def _solved(self, number: int, campaign: Campaign | ModelCampaign, valid: Sequence[Attempt]) -> list[Episode]:
        """Let the solver at each bug; several attempts at a time."""
        episodes = []
        for place, attempt in enumerate(valid, 1):
            draft = self._episode(number, campaign, attempt, ())
            verdict = self.store.verdict(attempt.artifact_id)
            assert verdict is not None
            solving = Solving(
                campaign.bench.scoped(),
                self.store.artifact(attempt.artifact_id),
                verdict,
                self.solver,
                self.store,
                seed=self.settings.seed,
            )

            def tell(rollout: Rollout, draft: Episode = draft, place: int = place) -> None:
                self._watch.status(
                    f"round {number + 1}, {draft.project}: bug {place} of {len(valid)}, "
                    f"attempt {rollout.attempt + 1} of {self.settings.attempts}"
                )
                self._watch.rollout(number, draft, rollout)

            try:
                rollouts = solving.attempts(self.settings.attempts, jobs=self.settings.jobs, progress=tell)
            except ProjectError as error:
                # The fix can be read by a solver: no attempt would say anything.
                self._watch.status(str(error))
                rollouts = []
            episodes.append(self._episode(number, campaign, attempt, rollouts))
        return episodes

    def _episode(
        self,
        number: int,
        campaign: Campaign | ModelCampaign,
        attempt: Attempt,
        rollouts: Sequence[Rollout],
        *,
        parent: str = "",
    ) -> Episode:
        valid = attempt.status is AttemptStatus.VALID
        info = self.store.artifact(attempt.artifact_id).info if valid else {}
        sizes = info.get("sizes", {})
        return Episode(
            project=campaign.snapshot.project_name,
            artifact_id=attempt.artifact_id,
            round=number + 1,
            order=int(info.get("order", 1)) if not parent else 2,
            parent=str(info.get("parent") or parent or ""),
            strategy=attempt.strategy,
            operator=attempt.operator,
            path=attempt.path,
            scope=attempt.scope,
            lines=int(sizes.get("lines_added", 0)) + int(sizes.get("lines_removed", 0)),
            fail_to_pass=attempt.fail_to_pass,
            valid=valid,
            reason=f"{attempt.check}: {attempt.reason}" if attempt.check else "",
            rollouts=tuple(rollouts),
        )

    def _second_order(self, number: int, project: Path, episodes: Sequence[Episode]) -> Iterator[Episode]:
        """Make bugs of the repairs that failed, prove them, and let the solver at those that hold."""
        failed = [f for e in episodes for f in self._failed(e)]
        if not failed:
            return
        second = self._open(project, [HigherOrderInjector(failed)], self.settings.seed + number)
        try:
            attempts = self._injected(number, second, len(failed), len(failed))
            valid = [a for a in attempts if a.status is AttemptStatus.VALID]
            for attempt in attempts:
                if attempt.status is AttemptStatus.REJECTED:
                    yield self._episode(number, second, attempt, (), parent="?")
            yield from self._solved(number, second, valid)
        finally:
            second.close()

    def _failed(self, episode: Episode) -> list[Failed]:
        """Return the different failed repairs of an episode, as many as are wanted."""
        found: dict[str, Failed] = {}
        for rollout in episode.rollouts:
            if rollout.resolved is not False or not rollout.patch_sha256 or rollout.forged:
                continue
            if rollout.patch_sha256 in found or len(found) >= self.settings.higher_order:
                continue
            path = self.store.root / ROLLOUTS / rollout.id / PATCH
            try:
                patch = Patch.parse(path.read_bytes())
                artifact = self.store.artifact(episode.artifact_id)
            except (OSError, ArtifactError, StoreError):
                continue
            found[rollout.patch_sha256] = Failed(episode.artifact_id, artifact, patch)
        return list(found.values())


def read_episodes(store: Store, run: str) -> list[dict[str, object]]:
    """Return the records of a run, in order."""
    folder = store.root / EPISODES / run
    return [json.loads(p.read_bytes()) for p in sorted(folder.glob("*.json"))]
