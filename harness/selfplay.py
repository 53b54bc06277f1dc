"""Rounds of self-play: bugs injected and proven, solved several times each, graded, rewarded; then the next round.

A round that is finished is kept as a whole under a name made of all that it depends on, and is read from there ever
after. One in which attempts have no grade is not finished, nor is what follows it: grades decide what is drawn later.
What is finished of such a round, attempts and grades, is in the store as well: a run that is cut off and started again
with the same words goes on where it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.agents.process_reward import ProcessReward
from harness.episode import Episode, Rollout, missing
from harness.higher_order import Failed, HigherOrderInjector
from harness.injectors.campaign import ModelCampaign, Submitting
from harness.injectors.given import GivenInjector
from harness.mixture import Functions, Mixture, Table, Traits
from harness.rewards import ALPHA, injector_reward
from harness.solvers.protocol import Solver
from harness.solving import PATCH, ROLLOUTS, Solving, proven, rates
from harness.spent import Spent
from harness.trying import GIVE_UP_AFTER, tried
from harness.version import code_hash
from pytest_ssr.attempt import Attempt, AttemptStatus
from pytest_ssr.campaign import Campaign
from pytest_ssr.errors import ArtifactError, ModelError, ProjectError, SettingsError, StoreError
from pytest_ssr.injectors.protocol import Injector, identities
from pytest_ssr.opening import open_workbench
from pytest_ssr.patch import Patch
from pytest_ssr.reasons import Rule
from pytest_ssr.settings import RuleSettings
from pytest_ssr.snapshot import Snapshot
from pytest_ssr.store import Store, key_of

EPISODES = "episodes"


@dataclass(frozen=True, slots=True)
class PlaySettings:
    """What a run of self-play is made with."""

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
    grade_unsubmitted: bool = False
    """As in Solving."""
    grade_by: Rule = Rule.STRICT
    """Which verdict of a grade decides rewards and solve rates."""
    model_written: bool = False
    """A model writes code or commands: `auto` takes no sandbox then that isolates nothing."""
    sandbox: str = "auto"
    python: Path | None = None
    rule: RuleSettings = RuleSettings()

    def __post_init__(self) -> None:
        """Refuse values that make no sense; raises SettingsError naming the option."""
        for name in ("rounds", "attempts", "count", "jobs"):
            if getattr(self, name) < 1:
                raise SettingsError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if self.higher_order < 0:
            raise SettingsError(f"--higher-order must be at least 0, not {self.higher_order}")
        injector_reward(False, alpha=self.alpha, kind=self.reward)


@dataclass(frozen=True, slots=True)
class Project:
    """A project that is played on."""

    folder: Path
    python: Path | None = None
    """The interpreter whose environment runs its tests; None: as the settings say."""
    sandbox: str = ""
    """Its own; empty: as the settings say."""


@dataclass(slots=True)
class Watch:
    """Is told what happens."""

    status: Callable[[str], None] = lambda _: None
    attempt: Callable[[int, str, Attempt], None] = lambda *_: None
    rollout: Callable[[Episode, Rollout], None] = lambda *_: None
    episode: Callable[[Episode], None] = lambda _: None
    round: Callable[[int, Sequence[Episode]], None] = lambda *_: None
    """What became of one round, counted from 1."""


class SelfPlay:
    """Plays rounds over projects."""

    def __init__(
        self,
        projects: Sequence[Project],
        store: Store,
        solver: Solver,
        settings: PlaySettings,
        *,
        injectors: Sequence[Injector] = (),
        model: Submitting | None = None,
        judge: ProcessReward | None = None,
        watch: Watch | None = None,
    ) -> None:
        """Copy the projects and find what runs their tests. model: injects in the place of `injectors`.

        Raises an SsrError that says what is wrong with a project, the interpreter or the sandbox.
        """
        self.store, self.solver, self.settings = store, solver, settings
        self._injectors, self._model, self._judge, self._watch = injectors, model, judge, watch or Watch()
        self._benches = [
            open_workbench(
                project.folder,
                store,
                settings=settings.rule,
                sandbox=project.sandbox or settings.sandbox,
                python=project.python or settings.python,
                model_written=settings.model_written,
            )
            for project in projects
        ]
        self._names = _told_apart([b.snapshot for b in self._benches])
        self._functions = [Functions(b.snapshot) for b in self._benches]
        self._tables = [Table(settings.attempts, settings.alpha, settings.reward) for _ in projects]
        self._seen: set[tuple[int, str]] = set()
        self.key = self._named()

    def _named(self) -> str:
        """Return the name of the run in the store: all that a round depends on, and not how many there are."""
        settings = self.settings
        return key_of(
            code_hash(),
            [(b.snapshot.tree_hash, b.interpreter.environment_hash, b.provider.name) for b in self._benches],
            [identities(self._injectors, b.snapshot) for b in self._benches],
            self._model and (self._model.key, [self._model.history(b.snapshot) for b in self._benches]),
            getattr(self.solver, "key", self.solver.name),
            self._judge and (self._judge.key, self._judge.coefficient),
            settings.rule.key(),
            settings.count,
            settings.attempts,
            settings.seed,
            settings.alpha,
            settings.reward,
            settings.adaptive,
            settings.higher_order,
            settings.grade_unsubmitted,
            settings.grade_by,
        )

    def play(self) -> list[Episode]:
        """Play all rounds and return the episodes in order.

        Raises ModelError when a model gives no reply: what is finished is kept, and the same run goes on later.
        """
        rounds: list[Episode] = []
        for number in range(self.settings.rounds):
            final = not missing(rounds)
            found = [self._round(number, place, final=final) for place in range(len(self._benches))]
            for place, episodes in enumerate(found):
                self._learn(place, episodes)
                rounds += episodes
            self._watch.round(number + 1, [e for episodes in found for e in episodes])
        return rounds

    def _round(self, number: int, place: int, *, final: bool) -> list[Episode]:
        """Return the episodes of one project in one round, from the store where it is finished.

        final: it may be kept as finished; no round before it lacks a grade.
        """
        episodes = read_round(self.store, self.key, number, place, attempts=self.settings.attempts)
        if episodes is None:
            episodes = list(self._played(number, place))
            if final and not missing(episodes):
                told = [e.to_json(alpha=self.settings.alpha, kind=self.settings.reward) for e in episodes]
                self.store.put_record(f"{EPISODES}/{self.key}", _name(number, place), {"episodes": told})
        self._seen |= {(place, e.change) for e in episodes}
        for episode in episodes:
            self._watch.episode(episode)
        return episodes

    def _learn(self, place: int, episodes: Sequence[Episode]) -> None:
        for episode in episodes:
            if episode.order > 1 or not episode.counts:
                continue
            solved, graded = rates(episode.rollouts)
            length = self._functions[place].statements(episode.path, episode.scope)
            # An operator that pays in one project is likely to pay in another; a file's name says nothing there.
            for other, table in enumerate(self._tables):
                path = episode.path if other == place else ""
                traits = Traits(episode.strategy, episode.operator, path, episode.lines, length)
                table.tell(traits, valid=episode.valid, solved=solved, graded=graded)

    def _played(self, number: int, place: int) -> Iterator[Episode]:
        settings = self.settings
        campaign, most = self._campaign(number, place)
        try:
            episodes = list(self._episodes(number, place, campaign, settings.count, most))
        finally:
            campaign.close()
        yield from episodes
        failed = [f for e in episodes if e.order == 1 for f in self._failed(e)]
        if failed:
            second = self._without_model(number, place, [HigherOrderInjector(failed)])
            try:
                yield from self._episodes(number, place, second, len(failed), len(failed))
            finally:
                second.close()

    def _campaign(self, number: int, place: int) -> tuple[Campaign | ModelCampaign, int]:
        """Return what injects in a round, and how many times it may try: a model as often as bugs are wanted."""
        settings = self.settings
        if self._model is not None:
            seed = int(key_of(settings.seed, number)[:6], 16)
            bench, model, most = self._benches[place].scoped(), self._model, settings.count
            if isinstance(model, GivenInjector):
                model = model.part(bench.snapshot, number, most)
                most = len(model.directories)
            return ModelCampaign(bench, self.store, model, seed=seed), most
        injectors = [Mixture(self._injectors, self._tables[place])] if settings.adaptive else self._injectors
        return self._without_model(number, place, injectors), GIVE_UP_AFTER * settings.count

    def _without_model(self, number: int, place: int, injectors: Sequence[Injector]) -> Campaign:
        return Campaign(self._benches[place].scoped(), self.store, injectors, seed=self.settings.seed + number)

    def _episodes(
        self, number: int, place: int, campaign: Campaign | ModelCampaign, count: int, most: int
    ) -> Iterator[Episode]:
        """Make so many bugs and let the solver at each; what no test noticed is no episode.

        What a model makes again is one, for it was paid for; no solver is let at it.
        """
        by_model = isinstance(campaign, ModelCampaign)
        project = self._names[campaign.snapshot.origin]

        def tell(attempt: Attempt) -> None:
            if self._fresh(place, [attempt]):
                self._watch.attempt(number, project, attempt)

        attempts = tried(
            campaign,
            count,
            jobs=self.settings.jobs,
            most=most,
            tell=tell,
            progress=lambda done: self._watch.status(_progress(number, project, done, count)),
            only=list if by_model else lambda done: self._fresh(place, done),
        )
        fresh = {a.index for a in self._fresh(place, attempts)}
        valid = [a for a in attempts if a.status is AttemptStatus.VALID and a.index in fresh]
        for attempt in attempts:
            if attempt.status is AttemptStatus.REJECTED or attempt.index not in fresh:
                yield self._episode(number, campaign, attempt, repeated=attempt.index not in fresh)
        for nth, attempt in enumerate(valid, 1):
            yield self._solved(number, campaign, attempt, f"bug {nth} of {len(valid)}")

    def _fresh(self, place: int, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Leave out changes that were made before, in an earlier round or in this one: they count once."""
        seen, fresh = {change for other, change in self._seen if other == place}, []
        for attempt in attempts:
            change = _hash(attempt.diff)
            if not change or change not in seen:
                fresh.append(attempt)
            seen.add(change)
        return fresh

    def _solved(self, number: int, campaign: Campaign | ModelCampaign, attempt: Attempt, which: str) -> Episode:
        """Let the solver at a bug, several attempts at a time."""
        settings, draft = self.settings, self._episode(number, campaign, attempt)
        artifact, bench = self.store.artifact(attempt.artifact_id), campaign.bench.scoped()
        solving = Solving(
            bench,
            artifact,
            proven(artifact, bench, self.store),
            self.solver,
            self.store,
            seed=settings.seed,
            grade_unsubmitted=settings.grade_unsubmitted,
            rule=settings.grade_by,
            judge=self._judge,
            baseline=lambda: campaign.baseline,
        )

        def tell(rollout: Rollout) -> None:
            attempts = f"attempt {rollout.attempt + 1} of {settings.attempts}"
            self._watch.status(f"round {number + 1}, {draft.project}: {which}, {attempts}")
            self._watch.rollout(draft, rollout)

        try:
            rollouts = solving.attempts(settings.attempts, jobs=settings.jobs, progress=tell)
        except ProjectError as error:
            # The fix can be read by a solver: no attempt would say anything.
            return self._episode(number, campaign, attempt, refused=str(error))
        if all(r.exit_reason == "model" for r in rollouts):
            raise ModelError(f"no attempt at {draft.artifact_id} has a grade: {rollouts[0].reason}")
        return self._episode(number, campaign, attempt, rollouts)

    def _episode(
        self,
        number: int,
        campaign: Campaign | ModelCampaign,
        attempt: Attempt,
        rollouts: Sequence[Rollout] = (),
        *,
        refused: str = "",
        repeated: bool = False,
    ) -> Episode:
        valid = attempt.status is AttemptStatus.VALID
        info = self.store.artifact(attempt.artifact_id).info if valid else {}
        spent = campaign.spent(attempt.index) if isinstance(campaign, ModelCampaign) else Spent()
        return Episode(
            project=self._names[campaign.snapshot.origin],
            artifact_id=attempt.artifact_id,
            round=number + 1,
            order=2 if attempt.strategy == "higher-order" else 1,
            parent=str(info.get("parent") or ""),
            strategy=attempt.strategy,
            operator=attempt.operator,
            path=attempt.path,
            scope=attempt.scope,
            lines=_lines(attempt.diff),
            fail_to_pass=attempt.fail_to_pass,
            valid=valid,
            reason=": ".join(filter(None, (attempt.check, attempt.reason))),
            refused=refused,
            repeated=repeated,
            change=_hash(attempt.diff),
            seconds=attempt.seconds,
            rollouts=tuple(rollouts),
            **asdict(spent),
        )

    def _failed(self, episode: Episode) -> list[Failed]:
        """Return the different failed repairs of an episode, as many as are wanted."""
        found: dict[str, Failed] = {}
        for rollout in episode.rollouts:
            is_failed = rollout.verdict is False and rollout.patch_sha256 and not rollout.forged
            if not is_failed or rollout.patch_sha256 in found or len(found) >= self.settings.higher_order:
                continue
            path = self.store.root / ROLLOUTS / rollout.id / PATCH
            try:
                patch = Patch.parse(path.read_bytes())
                artifact = self.store.artifact(episode.artifact_id)
            except (OSError, ArtifactError, StoreError):
                continue
            found[rollout.patch_sha256] = Failed(episode.artifact_id, artifact, patch)
        return list(found.values())


def _told_apart(snapshots: Sequence[Snapshot]) -> dict[Path, str]:
    """Return the projects' names, with the place of those called alike; raises SettingsError for one named twice."""
    trees, names = [s.tree_hash for s in snapshots], [s.project_name for s in snapshots]
    for tree in trees:
        if trees.count(tree) > 1:
            twice = ", ".join(str(s.origin) for s in snapshots if s.tree_hash == tree)
            raise SettingsError(f"{twice} hold the same files; name one of them")
    return {
        s.origin: name if names.count(name) == 1 else f"{name} ({s.origin})"
        for s, name in zip(snapshots, names, strict=True)
    }


def read_round(store: Store, run: str, number: int, place: int, *, attempts: int) -> list[Episode] | None:
    """Return the episodes of a finished round (counted from 0) of the project at a place; None where it is not."""
    told = (store.record(f"{EPISODES}/{run}", _name(number, place)) or {}).get("episodes")
    if not isinstance(told, list):
        return None
    known = [e for e in map(Episode.from_json, told) if e is not None]
    numbers = [[r.attempt for r in e.rollouts] for e in known]
    right = all(len(set(made)) == len(made) and set(made) <= set(range(attempts)) for made in numbers)
    return known if right and len(known) == len(told) else None


def _name(number: int, place: int) -> str:
    return f"round-{number + 1:03d}-{place + 1:03d}"


def _lines(diff: str) -> int:
    try:
        return Patch.parse(diff.encode("utf-8", "surrogatepass")).stats.lines
    except ArtifactError:
        return 0


def _hash(diff: str) -> str:
    return hashlib.sha256(diff.encode("utf-8", "surrogatepass")).hexdigest()[:24] if diff else ""


def _progress(number: int, project: str, done: Sequence[Attempt], count: int) -> str:
    valid = sum(a.status is AttemptStatus.VALID for a in done)
    return f"round {number + 1}, {project}: {len(done)} candidates, {valid} of {count} bugs"
