"""Declare the sections of settings that several commands share.

An option of a section has a flag and a dotted name: `--tries` and `--solver.tries`. Defaults are those of the classes
that use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from harness.settings.plan import section
from pytest_ssr.errors import SettingsError
from pytest_ssr.options import AT_LEAST_1, FRACTION_OR_0, option, required, shared, switch
from pytest_ssr.records.reasons import Rule
from pytest_ssr.settings import RuleSettings

if TYPE_CHECKING:
    from harness.records.task_choice import TaskChoice


def rule_option() -> Any:
    """Return a field for the rule that selects the deciding verdict of a grade."""
    text = "strict: the recorded tests pass and the evidence holds; tests: the recorded tests pass"
    return option(Rule.STRICT, "RULE", text)


def jobs_option(help: str, default: int = 1) -> Any:
    """Return a field for the number of parallel jobs."""
    return option(default, "N", help, short="-n", bound=AT_LEAST_1)


def ray_option() -> Any:
    """Return a field for the cluster that does the work."""
    text = "let the nodes of this Ray cluster work (HOST:PORT of its head, or auto) instead of this machine"
    return option("", "ADDRESS", text, variable="SSR_EXECUTOR", is_personal=True)


def mirror_option() -> Any:
    """Return a field for the mirrors of images and repositories."""
    text = (
        "fetch images and repositories whose name or URL begins with FROM from TO; without FROM=, prefix of the names "
        "of images; can be repeated"
    )
    return option((), "FROM=TO", text, is_personal=True)


def dataset_argument() -> Any:
    """Return a field for a dataset."""
    text = "a .jsonl, .json or .parquet file, a folder of them, a store (.ssr), owner/name on the hub"
    return required("DATASET", text, is_argument=True)


class RunOptions(TypedDict):
    """How tests are run: the keyword arguments of everything that opens a project."""

    settings: RuleSettings
    sandbox: str
    python: Path | None


@dataclass(frozen=True, slots=True)
class ExecutionSettings:
    """How tests are run."""

    sandbox: str = shared("sandbox")
    python: Path | None = shared("python")
    time_limit: float = shared("time_limit")
    max_weakened_failing: float = shared("max_weakened_failing")
    script_limit: float = shared("script_limit")
    min_passing_tests: int = shared("min_passing_tests")
    min_changed_files: int = shared("min_changed_files")
    min_failing_tests: int = shared("min_failing_tests")
    max_broken_fraction: float = shared("max_broken_fraction")
    allow_undefined_names: bool = shared("allow_undefined_names")

    def rules(self, *, per_hunk: bool = False, by_script: bool = False) -> RuleSettings:
        """Return the thresholds and limits of validation."""
        return RuleSettings(
            min_passing_tests=self.min_passing_tests,
            min_changed_files=self.min_changed_files,
            min_failing_tests=self.min_failing_tests,
            max_broken_fraction=self.max_broken_fraction,
            per_hunk=per_hunk,
            allow_undefined_names=self.allow_undefined_names,
            by_script=by_script,
            max_weakened_failing=self.max_weakened_failing,
            script_limit_s=self.script_limit,
            time_limit_s=self.time_limit,
        )

    def run_options(self, *, per_hunk: bool = False, by_script: bool = False) -> RunOptions:
        """Return the keyword arguments of what opens a project."""
        rules = self.rules(per_hunk=per_hunk, by_script=by_script)
        return RunOptions(settings=rules, sandbox=self.sandbox, python=self.python)


@dataclass(frozen=True, slots=True)
class SelectionSettings:
    """Which instances of a dataset."""

    split: str = option("", "NAME", "split of a dataset on the hub (default: test)")
    only: str = option("", "PATTERN", "only instances whose id matches this regular expression")
    shuffle: int | None = option(None, "SEED", "shuffle the instances with this seed")
    slice: str = option("", "A:B", "slice of the instances: 10:20, :5, ::3")


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """Where instances have their repositories and environments."""

    repos: Path | None = option(None, "DIR", "folder of local clones, named owner__name (default: clone and cache)")
    images: Literal["docker", "apptainer"] | None = option(
        None, "KIND", "run each instance in its own image: the row's, else the one named by its family's convention"
    )
    mirror: tuple[str, ...] = mirror_option()


@dataclass(frozen=True, slots=True)
class CardSettings:
    """Which tasks count, by the cards of an audit."""

    audit: Path | None = option(
        None, "FILE", "the folder of an ssr audit, or its cards.jsonl: tasks that are not sound do not count"
    )
    min_sharpness: float | None = option(
        None,
        "S",
        "with --audit: nor do tasks without an audit, of unknown sharpness, or whose tests notice less than this share "
        "of wrong solutions, from 0 to 1",
        bound=FRACTION_OR_0,
    )

    def __post_init__(self) -> None:
        """Raise SettingsError for a least sharpness without cards."""
        if self.min_sharpness is not None and self.audit is None:
            raise SettingsError(
                "--min-sharpness needs the cards of an audit; add --audit FILE, which ssr audit writes",
                option="min-sharpness",
            )

    def choice(self) -> TaskChoice | None:
        """Read the cards, and return which tasks pass; None without an audit. Raises SettingsError for damaged ones."""
        from harness.audit.files import choice_of, read_cards

        return choice_of(read_cards(self.audit), self.min_sharpness) if self.audit is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """A run over the instances of a dataset."""

    dataset: str = dataset_argument()
    selection: SelectionSettings = section(SelectionSettings)
    instances: InstanceSettings = section(InstanceSettings)
    cards: CardSettings = section(CardSettings)
    out: Path = required("DIR", "folder for the files of the run")
    jobs: int = jobs_option("parallel workers")
    ray: str = ray_option()
    dist: Literal["load", "worksteal"] = option("load", "NAME", "how xdist distributes the work")
    no_logs: bool = switch("do not run the tests once more for a log in SWE-bench's format")
    full: bool = switch("run all tests, even after a recorded one has failed (always on without --no-logs)")
    rule: Rule = rule_option()
    run_id: str = option("ssr", "NAME", "name of the run in the logs' folder")
    dry_run: bool = switch("list what each row needs and whether it is here; run nothing", is_own=True)
    store: Path | None = shared("store", help="store that is kept between runs (default: OUT/.ssr)")
    execution: ExecutionSettings = section(ExecutionSettings)
