"""Run `ssr leaderboard`: write a leaderboard as text, JSON, CSV, Markdown, a page, plots and submissions."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.datasets.loading import read_dataset
from harness.settings.results import LeaderboardSettings
from harness.storage.atomic_write import write_bytes, write_text
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import MissingExtraError, SettingsError, StoreWriteError, os_error_advice
from pytest_ssr.progress import counted

if TYPE_CHECKING:
    from harness.leaderboard.board import Board
    from harness.leaderboard.settings import RankSettings

_EXTRA = ("pandas", "scipy", "matplotlib")


def leaderboard(settings: LeaderboardSettings) -> int:
    """Compute a leaderboard of runs and write the requested files."""
    _require_extra()
    from harness.leaderboard.board import make_board
    from harness.leaderboard.loading import read_runs, stores_of
    from harness.leaderboard.play_stores import unranked

    ranking = _rank_settings(settings)
    results = read_runs(
        settings.runs,
        by=settings.by,
        alpha=ranking.alpha,
        kind=ranking.reward,
        rule=ranking.rule,
    )
    board = make_board(results, ranking)
    terminal = Terminal(quiet=settings.json)
    for label, root in stores_of(settings.runs):
        if left_out := unranked(root):
            many = counted(left_out, "attempt")
            terminal.note(f"{label}: {many} of ssr solve left out: a play has its solver's attempts at the bug")
    with _store_write_errors():
        data = board.to_json() if settings.json or settings.csv else {}
        written = list(_files(settings, board, data))
        written += _submissions(settings)
    if settings.json:
        print(json.dumps(data))
        return ExitCode.DONE
    from harness.leaderboard.text_render import lines

    for kind, line in lines(board):
        terminal.echo(line, kind)
    for path in written:
        terminal.echo(f"written: {display_path(path)}")
    return ExitCode.DONE


def _require_extra() -> None:
    for package in _EXTRA:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "leaderboard")


def _rank_settings(settings: LeaderboardSettings) -> RankSettings:
    from harness.leaderboard.settings import RankSettings
    from harness.leaderboard.submissions import read_pool

    created = {}
    if settings.instances:
        created = {i.id: i.created_at for i in read_dataset(settings.instances) if i.created_at}
    return RankSettings(
        seed=settings.seed,
        ks=settings.k,
        reference=settings.reference,
        frozen=read_pool(settings.pool) if settings.pool else {},
        released=dict(_pairs("--released", settings.released)),
        created=created,
        alpha=settings.alpha,
        reward=settings.reward,
        rule=settings.rule,
        choice=settings.cards.choice(),
    )


def _pairs(option: str, items: Sequence[str]) -> Iterator[tuple[str, str]]:
    for item in items:
        name, mark, value = item.rpartition("=")
        if not mark or not name or not value:
            raise SettingsError(f"{option} {item} is not NAME=VALUE")
        yield name, value


def _files(settings: LeaderboardSettings, board: Board, data: Mapping[str, Any]) -> Iterator[Path]:
    """Write the requested files, and yield their paths."""
    from harness.leaderboard.text_render import csv_tables, is_table, markdown

    if settings.csv:
        tables = csv_tables(data)
        stem = settings.csv.name.removesuffix(".csv")
        for name, text in tables.items():
            path = settings.csv if name == "solvers" else settings.csv.with_name(f"{stem}.{name}.csv")
            if text:
                write_text(path, text)
                yield path
            elif is_table(name, path):
                # It belongs to an earlier board.
                path.unlink()
    if settings.markdown:
        write_text(settings.markdown, markdown(board))
        yield settings.markdown
    if settings.html:
        from harness.leaderboard.page import page

        write_text(settings.html, page(board, title=settings.title))
        yield settings.html
    if settings.plots:
        from harness.leaderboard.plots import plots, render

        for plot in plots(board):
            for kind in ("pdf", "svg"):
                path = settings.plots / f"{plot.name}.{kind}"
                write_bytes(path, render(plot, kind=kind).data)
                yield path
    if settings.save_pool:
        yield _save_pool(settings.save_pool, board)


def _save_pool(path: Path, board: Board) -> Path:
    pool: dict[str, Any] = {r["solver"]: r["ability"]["value"] for r in board.solvers if r.get("ability")}
    named = {name: pool[name] for name in board.about["reference_pool"] if name in pool}
    if not named:
        raise SettingsError("--save-pool needs a store of ssr play in which solvers attempted bugs", option="save-pool")
    write_text(path, json.dumps({"schema_version": 1, "pool": named}, indent=1) + "\n")
    return path


def _submissions(settings: LeaderboardSettings) -> list[Path]:
    chosen = settings.submission
    if not chosen.submission:
        return []
    from harness.leaderboard.loading import results_of
    from harness.leaderboard.submissions import Submission, write_submissions

    submission = Submission(chosen.date or f"{datetime.now(UTC):%Y%m%d}", chosen.split, chosen.dataset, chosen.task)
    runs = results_of(settings.runs)
    if not runs:
        raise SettingsError(
            "--submission needs a folder of ssr run or ssr eval; the given runs include none", option="submission"
        )
    return write_submissions(chosen.submission, runs, submission)


@contextlib.contextmanager
def _store_write_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreWriteError(f"{error.filename or 'the file'}: {os_error_advice(error, option='')}") from None
