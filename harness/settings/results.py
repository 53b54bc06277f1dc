"""Declare the settings of the commands on the results of runs: leaderboard and export."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from harness.models.urls import masked
from harness.records.rewards import ALPHA, KINDS
from harness.settings.plan import CommandSettings, section
from harness.settings.sections import CardSettings, SelectionSettings, jobs_option, rule_option
from pytest_ssr.errors import MissingExtraError, SettingsError
from pytest_ssr.options import FRACTION, INNER_FRACTION, NOT_NEGATIVE, option, required, shared, switch
from pytest_ssr.records.reasons import Rule

if TYPE_CHECKING:
    from harness.exporters.admission import Admission
    from harness.exporters.filters import Filters
    from harness.exporters.protocol import Choices, Format


@dataclass(frozen=True, slots=True)
class SubmissionSettings:
    """Submissions to other leaderboards."""

    submission: Path | None = option(None, "DIR", "folder for submissions to other leaderboards")
    date: str = option("", "YYYYMMDD", "date of the submission (default: today)", is_own=True)
    split: str = option("verified", "NAME", "split of the submission", is_own=True)
    dataset: str = option("", "OWNER/NAME", "dataset of the submission on Hugging Face", is_own=True)
    task: str = option("", "ID", "id of the metric in that dataset", is_own=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodesSettings(CommandSettings):
    """List the episodes of self-play in a store."""

    example: ClassVar[str] = "ssr episodes .ssr --last 20"
    store: Path = option(Path(".ssr"), "STORE", "a store, or a project with one", is_argument=True)
    run: str = option("", "RUN", "only those of this run: its id, or the beginning of it")
    last: int = option(0, "N", "only the last ones; 0 for all", bound=NOT_NEGATIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsSettings(CommandSettings):
    """Sum up the episodes of self-play in a store: validity, solve rates, rewards, cost."""

    example: ClassVar[str] = "ssr stats .ssr"
    store: Path = option(Path(".ssr"), "STORE", "a store, or a project with one", is_argument=True)
    run: str = option("", "RUN", "only those of this run: its id, or the beginning of it")
    alpha: float = option(ALPHA, "A", "weight of the solve rate in the injector's reward", bound=INNER_FRACTION)
    reward: str = option(KINDS[0], "KIND", "reward of the injector", choices=lambda: KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardSettings(CommandSettings):
    """Compare solvers and injectors over any number of runs."""

    example: ClassVar[str] = "ssr leaderboard runs/search best=runs/other .ssr --html board.html"
    runs: tuple[str, ...] = required(
        "RUN",
        "a folder of ssr run or ssr eval, a report of SWE-bench, or a store of ssr play; NAME=RUN sets its name",
        is_argument=True,
    )
    html: Path | None = option(None, "FILE", "a single HTML page with everything", is_own=True)
    csv: Path | None = option(None, "FILE", "the solvers; other tables are written beside it, as FILE.tasks.csv")
    markdown: Path | None = option(None, "FILE", "all tables")
    save_pool: Path | None = option(None, "FILE", "save the reference pool's abilities, for --pool")
    pool: Path | None = option(None, "FILE", "use these saved abilities: a frozen reference pool")
    plots: Path | None = option(None, "DIR", "folder for the plots for papers, as PDF and SVG")
    title: str = option("Leaderboard", "TEXT", "title of the page")
    k: tuple[int, ...] = option((), "K", "values of k for pass@k (default: powers of two)", takes_many=True)
    seed: int = shared("seed", help="seed of the comparisons")
    reference: tuple[str, ...] = option(
        (),
        "SOLVER",
        "solver of the pool that measures injectors; can be repeated (default: all that attempted every injector)",
    )
    by: Literal["auto", "strategy", "operator", "run"] = option(
        "auto", "WAY", "how injectors are named; auto: by the model, else by the strategy"
    )
    rule: Rule = rule_option()
    alpha: float = option(ALPHA, "A", "weight of the solve rate in the injector's reward", bound=INNER_FRACTION)
    reward: str = option(KINDS[0], "KIND", "reward of the injector", choices=lambda: KINDS)
    released: tuple[str, ...] = option(
        (), "SOLVER=DAY", "release date (2026-01-31) of a solver's model: older tasks are flagged; can be repeated"
    )
    instances: str = option("", "DATASET", "dataset with the creation dates of tasks", is_own=True)
    cards: CardSettings = section(CardSettings)
    submission: SubmissionSettings = section(SubmissionSettings)


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """Which rollouts and tasks are exported."""

    role: str = option("", "NAME", "solver or injector (default: both)", is_own=True)
    model: str = option("", "NAME", "only rollouts of this model", is_own=True)
    strategy: str = option("", "NAMES", "strategies of the bug, comma-separated: mutation,removal", is_own=True)
    min_reward: float | None = option(
        None, "N", "least reward (default: above 0 for imitation (sft, sft-tokens, bc), else any)", is_own=True
    )
    max_reward: float | None = option(None, "N", "largest reward", is_own=True)
    min_solve_rate: float | None = option(None, "N", "least solve rate of the same model on the same bug", is_own=True)
    max_solve_rate: float | None = option(None, "N", "largest solve rate", is_own=True)
    min_calls: int | None = option(None, "N", "fewest model calls in one rollout", is_own=True)
    max_calls: int | None = option(None, "N", "most model calls in one rollout", is_own=True)
    max_tokens: int | None = option(None, "N", "tokens of the longest call, prompt and reply", is_own=True)
    on_policy: bool = switch("only rollouts with all their tokens", is_own=True)
    no_flags: bool = switch("leave out rollouts whose grade has a flag", is_own=True)

    def of(self, form: Format) -> Filters:
        """Return the filters of an export in a format; raises SettingsError for values that it cannot have."""
        from harness.exporters.filters import Filters

        filters = Filters(
            role=self.role,
            model=self.model,
            strategies=tuple(s for s in self.strategy.split(",") if s),
            min_reward=self.min_reward,
            max_reward=self.max_reward,
            positive=form.imitates and self.min_reward is None,
            min_solve_rate=self.min_solve_rate,
            max_solve_rate=self.max_solve_rate,
            min_calls=self.min_calls,
            max_calls=self.max_calls,
            max_tokens=self.max_tokens,
            on_policy=self.on_policy,
            no_flags=self.no_flags,
        )
        if form.of_tasks and (given := filters.of_rollouts()):
            raise SettingsError(
                f"{given[0]} is for rollouts; {form.name} is made of artifacts", option=given[0].removeprefix("--")
            )
        return filters


_SIMILARITY = 0.8


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """Near duplicates and caps."""

    near_duplicates: Literal["report", "drop", "off"] = option(
        "report",
        "MODE",
        "bugs and tasks whose diff or statement nearly repeats another one: report them, drop them, or off",
    )
    similarity: float = option(
        _SIMILARITY,
        "J",
        "least Jaccard similarity of the tokens of near duplicates, from 0 to 1",
        bound=FRACTION,
        is_own=True,
    )
    against: tuple[Path, ...] = option(
        (),
        "ROWS",
        "also compare with this benchmark: a .jsonl, .json or .parquet file, or a folder of Harbor's tasks; can be "
        "repeated",
        is_own=True,
    )
    most_per: str = option(
        "", "CAPS", "most bugs of a function, an operator or a repository: function=2,operator=50,repository=200"
    )

    def empty(self) -> Admission:
        """Return an admission without any bugs; raises SettingsError for options that contradict each other."""
        from harness.exporters.admission import Admission, Likeness, parse_caps

        likeness = Likeness(self.near_duplicates)
        if likeness is Likeness.OFF and self.against:
            raise SettingsError("--against has no effect with --near-duplicates off", option="against")
        return Admission(parse_caps(self.most_per), likeness, self.similarity)


def _formats() -> tuple[str, ...]:
    from harness.exporters.formats import formats_of
    from pytest_ssr.installed_plugins import load_extensions

    return tuple(formats_of(load_extensions()))


def _containers() -> tuple[str, ...]:
    from harness.exporters.protocol import CONTAINERS, FOLDERS, TARS

    return (*CONTAINERS, *TARS, FOLDERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings(CommandSettings):
    """Write training data from rollouts, artifacts and datasets, with a card that documents it."""

    example: ClassVar[str] = "ssr export .ssr --format sft --out data/sft"
    source: tuple[Path, ...] = required(
        "SOURCE",
        "stores (.ssr), projects or runs that contain one, .jsonl files of `--format rollouts`, trajectories of ATIF, "
        "jobs of Harbor, or datasets",
        is_argument=True,
    )
    format: str = required("NAME", "format of the rows", choices=_formats)
    out: str = required("PATH", "a folder, a file (by its suffix), or a URL: s3://bucket/data")
    container: str = option(
        "",
        "KIND",
        "kind of files: one of the tars for artifacts, `folders` or one of them for harbor (default: the format's)",
        flag="as",
        choices=_containers,
    )
    selection: SelectionSettings = section(SelectionSettings)
    splits: str = option("", "SHARES", "split by project: train=0.9,test=0.1 (default: only train)")
    seed: int = option(0, "N", "seed of the splits", is_own=True)
    rule: Rule | None = option(
        None, "RULE", "strict or tests: the verdict that decides rewards (default: the one that each run used)"
    )
    licence: tuple[str, ...] = option((), "PROJECT=SPDX", "licence of a project; can be repeated")
    filters: FilterSettings = section(FilterSettings)
    cards: CardSettings = section(CardSettings)
    admission: AdmissionSettings = section(AdmissionSettings)
    samples: Literal["step", "segment"] = option(
        "step", "UNIT", "samples of slime: one per reply, or per token sequence"
    )
    segment_reward: Literal["full", "split", "last"] = option(
        "full",
        "WAY",
        "slime, if a rollout has several samples: each gets the full reward, a share, or only the last gets it",
    )
    image: str = option("", "NAME", "container image with the project of a task")
    workdir: str = option("/testbed", "PATH", "path of the project in the image")
    owner: str = option("ssr", "NAME", "owner of projects, in rows of the SWE-bench family")
    plain: bool = switch("of harbor: the verifier runs the recorded tests alone, which code can forge")
    images: str = option(
        "", "PREFIX", "of harbor: build and push images with this prefix, as in ghcr.io/me, and name them by digest"
    )
    network: Literal["none", "default"] = option(
        "none", "MODE", "of harbor: none, or default for an engine that cannot take the network away", is_own=True
    )
    jobs: int = jobs_option(
        "processes that make the rows of 10,000 rollouts or more as lines of JSON; the rows do not depend on it", 2
    )
    repos: Path | None = option(
        None, "DIR", "folder to write the repositories to that rows of swe-bench start from", is_own=True
    )

    @property
    def form(self) -> Format:
        """The format; plugins are loaded only for theirs."""
        from harness.exporters.audited import audited_format
        from harness.exporters.formats import FORMATS, formats_of
        from pytest_ssr.installed_plugins import load_extensions

        form = FORMATS.get(self.format) or formats_of(load_extensions())[self.format]
        return audited_format(form) if self.cards.audit is not None else form

    def filters_for(self, form: Format) -> Filters:
        """Return the filters of an export in a format, with the cards of an audit. See `FilterSettings.of`."""
        return replace(self.filters.of(form), audit=self.cards.choice())

    def choices_for(self, form: Format) -> Choices:
        """Return the choices about rows; raises SettingsError for one that the format does not use."""
        from harness.exporters.protocol import Choices

        given = {name: getattr(self, name) for name in _USES}
        for name, forms in _USES.items():
            if given[name] != getattr(Choices(), name) and form.name not in forms:
                option = name.replace("_", "-")
                raise SettingsError(f"--{option} has no effect on {form.name}", option=option)
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", self.owner) or "__" in self.owner:
            raise SettingsError(f"--owner {self.owner!r} is not a valid repository owner", option="owner")
        return Choices(**given)

    def check(self) -> None:
        """Refuse filters, choices and containers that the format does not have."""
        from harness.exporters.dataset_writer import Destination

        form = self.form
        self.filters.of(form)
        self.choices_for(form)
        self.admission.empty()
        # The packages that write it are those of the machine that does.
        with contextlib.suppress(MissingExtraError):
            Destination.parse(self.out, self.container, allowed=form.containers)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings(CommandSettings):
    """Publish a folder of ssr export as a data set: checked, with a card of figures and plots."""

    example: ClassVar[str] = "ssr publish data/sft --to hf:me/bugs --dry-run"
    folder: Path = required("FOLDER", "a folder that ssr export wrote", is_argument=True)
    to: str = required(
        "WHERE",
        "hf:OWNER/NAME[#BRANCH] for a data set on the Hugging Face Hub, git:URL#BRANCH for a git repository",
        is_own=True,
        is_personal=True,
    )
    dry_run: bool = switch("check everything, and list what would be published; needs no network", is_own=True)
    tag: str = option("", "NAME", "add this tag to the published version", is_own=True)
    public: bool = switch("a new data set on the hub is public (default: private)", is_own=True, is_personal=True)
    replace: bool = switch("overwrite files there that ssr publish has not written", is_own=True, is_personal=True)
    images: str = option(
        "", "PREFIX", "of harbor: build and push images with this prefix, as in ghcr.io/me, and name them by digest"
    )
    allow: tuple[str, ...] = option(
        (),
        "PATTERN",
        "publish what matches this regular expression although it looks secret or private; can be repeated",
        is_own=True,
        is_personal=True,
    )

    @property
    def target(self) -> tuple[str, str, str]:
        """The kind of the destination, its name or URL, and the branch; raises SettingsError for another form."""
        kind, colon, rest = self.to.partition(":")
        name, _, branch = rest.rpartition("#") if "#" in rest else (rest, "", "")
        if not colon or not name or (kind, bool(branch)) not in _TARGETS:
            raise SettingsError(f"--to {masked(self.to)} is not hf:OWNER/NAME or git:URL#BRANCH", option="to")
        if kind == "hf" and not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise SettingsError(f"--to {self.to}: {name} is not OWNER/NAME", option="to")
        return kind, name, branch

    @property
    def allowed(self) -> list[re.Pattern[str]]:
        """What may be published although it looks secret or private; raises SettingsError for a wrong expression."""
        try:
            return [re.compile(pattern) for pattern in self.allow]
        except re.error as error:
            raise SettingsError(f"--allow: {error.pattern!r} is not a regular expression", option="allow") from None

    def check(self) -> None:
        """Refuse destinations that cannot be one, and switches without an effect on them."""
        kind, _, _ = self.target
        if kind == "git" and self.public:
            raise SettingsError("--public is for the hub; a git repository has its own settings", option="public")
        _ = self.allowed


_TARGETS = (("hf", False), ("hf", True), ("git", True))
"""The kinds of destinations, and whether a branch is named."""
_TASKS = ("swe-rl", "swe-bench", "swe-smith")
_USES = {
    "samples": ("slime-samples",),
    "segment_reward": ("slime-samples",),
    "image": ("slime-prompts", "harbor", *_TASKS),
    "workdir": ("slime-prompts", "harbor"),
    "owner": ("slime-prompts", "harbor", *_TASKS),
    "plain": ("harbor",),
    "network": ("harbor",),
    "images": ("harbor",),
    "repos": ("swe-rl", "swe-bench"),
}
"""The formats that use a choice."""
