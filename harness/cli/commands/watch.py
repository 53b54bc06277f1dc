"""Run `ssr watch`: review what each save of a file changes, until an interrupt."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from harness.cli.executors import open_executor
from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.injectors.campaign_work import CampaignWork
from harness.settings.survivors import WatchSettings
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.campaign.parallel import PER_CHANGE, run_candidates
from pytest_ssr.campaign.report import opening_lines, progress_line
from pytest_ssr.campaign.review import Review, changes_until, review_lines, review_of, survivors_with_remarks
from pytest_ssr.campaign.score import scored_injectors
from pytest_ssr.campaign.suggested_tests import suggest_tests
from pytest_ssr.errors import NothingToDoError, SsrError
from pytest_ssr.injectors.revision_filter import ProjectDiff, diff_between
from pytest_ssr.interrupts import pause, until
from pytest_ssr.options import PluginSettings
from pytest_ssr.progress import ProgressLines
from pytest_ssr.project.snapshot import FileStamp, Snapshot, change_stamps, require_directory, take_snapshot
from pytest_ssr.records.candidate_result import Goal
from pytest_ssr.storage.free_space import require_space
from pytest_ssr.storage.store import Store

_POLL_S, _QUIET_S = 0.5, 0.2
"""How often files are looked at, and for how long they stay as they are before a save counts as complete."""
_SHARE = 0.05
"""The most of a core that looking may take."""
_MOST_LOOKS = 50
"""After so many looks a save counts as complete although files still change, such as a log that a server writes."""


def watch(settings: WatchSettings) -> int:
    """Review each save; return 0 when an interrupt ends it."""
    require_directory(settings.repo)
    watcher = _Watcher(settings)
    with contextlib.suppress(KeyboardInterrupt):
        watcher.run()
    return ExitCode.DONE


class _Watcher:
    """Reviews what a save changes, and remembers what was changed last."""

    def __init__(self, settings: WatchSettings) -> None:
        self._settings = settings
        self._terminal = Terminal(quiet=settings.json)
        root = settings.store or settings.repo / ".ssr"
        require_space(root, "store")
        self._store = Store(root)
        self._base: Snapshot | None = None
        """The project before the last save that has changed code."""

    def run(self) -> None:
        """Measure the tests, then review each save."""
        # First the stamps: what is saved while the tests are measured is seen.
        stamps = change_stamps(self._settings.repo)
        before = self._snapshot()
        with contextlib.closing(self._open(before, None)) as campaign:
            for kind, line in opening_lines(campaign):
                self._terminal.echo(line, kind)
        self._say("watching; save a file, or end with Ctrl-C")
        project, trees = self._settings.repo, self._store.trees
        for after in saves(project, trees, before, stamps, lambda error: self._say(str(error), "bad")):
            try:
                self._review(before, after)
            except NothingToDoError as error:
                self._say(str(error))
                # Tests of this code may come next.
                self._base = self._base or before
                before = after
            except SsrError as error:
                # Code is often broken between two saves; what has changed is what differs from the last tree that ran.
                self._say(str(error), "bad")
            else:
                before = after

    def _say(self, text: str, kind: str = "") -> None:
        if self._settings.json:
            print(json.dumps({"message": text}), flush=True)
        else:
            self._terminal.echo(text, kind)

    def _snapshot(self) -> Snapshot:
        return take_snapshot(self._settings.repo, self._store.trees)

    def _open(self, snapshot: Snapshot, diff: ProjectDiff | None) -> Campaign:
        settings = self._settings
        return open_campaign(
            settings.repo,
            self._store,
            **settings.execution.run_options(),
            injectors=scored_injectors(PluginSettings.injector),
            seed=settings.seed,
            sources=settings.source,
            tests=settings.tests,
            jobs=settings.jobs,
            judges_only=True,
            diff=diff,
            tree_hash=snapshot.tree_hash,
            progress=ProgressLines(live=self._terminal.status, plain=self._terminal.note),
        )

    def _review(self, before: Snapshot, after: Snapshot) -> None:
        """Review the functions that a save has changed; those of the save before, if it has changed tests alone."""
        base, diff = before, diff_between(before, after)
        if not diff.lines and self._base is not None and not _is_code_other(before, after):
            # Against the same base: the lines may have moved since the last review.
            base, diff = self._base, diff_between(self._base, after)
        if not diff.lines:
            self._say("saved: no code has changed")
            return
        started = time.monotonic()
        with contextlib.closing(self._open(after, diff)) as campaign:
            # Not that of broken code.
            self._base = base
            found = self._judge(campaign)
        if self._settings.json:
            print(json.dumps(found.to_json()), flush=True)
            return
        for kind, line in review_lines(found, self._settings.budget_s):
            self._terminal.echo(line, kind)
        self._terminal.echo(f"after {time.monotonic() - started:.1f} s")

    def _judge(self, campaign: Campaign) -> Review:
        settings, terminal = self._settings, self._terminal
        goal = Goal(1, settings.changes)
        deadline = time.monotonic() + settings.budget_s
        with until(changes_until(deadline)), open_executor("", settings.jobs, campaign.store, terminal) as executor:
            results = run_candidates(
                campaign,
                goal,
                units=executor.units(CampaignWork(campaign)),
                most=PER_CHANGE * goal.changes,
                progress=lambda done: terminal.status(progress_line(done, goal, terminal.elapsed_s)),
            )
        is_complete = goal.is_reached(results) or campaign.is_complete(results)
        suggestions = suggest_tests(
            campaign, survivors_with_remarks(campaign, results), deadline=deadline, progress=terminal.status
        )
        if suggestions.is_interrupted:
            raise KeyboardInterrupt
        return review_of(campaign, results, suggestions.tests, is_complete=is_complete)


def saves(
    project: Path,
    trees: Path,
    first: Snapshot,
    seen: Mapping[str, tuple[int, int]],
    report: Callable[[SsrError], None],
) -> Iterator[Snapshot]:
    """Yield the project after each save that has changed a file's content.

    trees: the folder of snapshots. seen: the stamps before the first snapshot. report: called if a save cannot be read.
    """
    files, took_s = _saved_files(first), 0.0
    while True:
        pause(max(_POLL_S, took_s / _SHARE))
        started = time.monotonic()
        now = change_stamps(project)
        took_s = time.monotonic() - started
        if now == seen:
            continue
        for _ in range(_MOST_LOOKS):
            pause(_QUIET_S)
            seen, now = now, change_stamps(project)
            if now == seen:
                break
        try:
            snapshot = take_snapshot(project, trees)
        except SsrError as error:
            report(error)
            continue
        if _saved_files(snapshot) != files:
            files = _saved_files(snapshot)
            yield snapshot


def _saved_files(snapshot: Snapshot) -> dict[str, FileStamp]:
    """Return the files of a snapshot without those that an editor keeps beside a file while it is open."""
    return {path: stamp for path, stamp in snapshot.files.items() if not _is_of_editor(PurePosixPath(path).name)}


def _is_of_editor(name: str) -> bool:
    """Return whether a file is hidden, such as the swap files of Vim and the locks of Emacs, or a backup."""
    return name.startswith((".", "#")) or name.endswith("~")


def _is_code_other(before: Snapshot, after: Snapshot) -> bool:
    """Return whether code has changed, if only in comments or by a removal."""
    paths = {*before.code_paths(), *after.code_paths()}
    return any(before.files.get(path) != after.files.get(path) for path in paths)
