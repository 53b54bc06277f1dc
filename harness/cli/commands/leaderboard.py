"""Run `ssr leaderboard`: write a leaderboard as text, JSON, CSV, Markdown, a page, plots and submissions."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.commands.artifacts import DONE
from harness.cli.options import chosen_rule
from harness.cli.terminal import Terminal
from harness.datasets.loading import read_instances
from harness.storage.atomic_write import write_bytes, write_text
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import MissingExtraError, SettingsError, StoreWriteError, os_error_advice

if TYPE_CHECKING:
    from harness.leaderboard.board import Board
    from harness.leaderboard.settings import RankSettings

_EXTRA = ("pandas", "scipy", "matplotlib")


def leaderboard(arguments: argparse.Namespace) -> int:
    """Compute a leaderboard of runs and write the requested files."""
    _require_extra()
    from harness.leaderboard.board import make_board
    from harness.leaderboard.loading import read_runs

    settings = _settings(arguments)
    results = read_runs(
        arguments.run_folder,
        by=arguments.by,
        alpha=settings.alpha,
        kind=settings.reward,
        rule=settings.rule,
    )
    board = make_board(results, settings)
    terminal = Terminal(quiet=arguments.json)
    with _store_write_errors():
        data = board.to_json() if arguments.json or arguments.csv else {}
        written = list(_files(arguments, board, data))
        written += _submissions(arguments)
    if arguments.json:
        print(json.dumps(data))
        return DONE
    from harness.leaderboard.text_render import lines

    for kind, line in lines(board):
        terminal.echo(line, kind)
    for path in written:
        terminal.echo(f"written: {display_path(path)}")
    return DONE


def _require_extra() -> None:
    for package in _EXTRA:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "leaderboard")


def _settings(arguments: argparse.Namespace) -> RankSettings:
    from harness.leaderboard.settings import RankSettings
    from harness.leaderboard.submissions import read_pool

    created = {}
    if arguments.instances:
        created = {i.id: i.created_at for i in read_instances(arguments.instances) if i.created_at}
    return RankSettings(
        seed=arguments.seed,
        ks=tuple(arguments.k),
        reference=tuple(arguments.reference),
        frozen=read_pool(arguments.pool) if arguments.pool else {},
        released=dict(_pairs("--released", arguments.released)),
        created=created,
        alpha=arguments.alpha,
        reward=arguments.reward,
        rule=chosen_rule(arguments),
    )


def _pairs(option: str, items: list[str]) -> Iterator[tuple[str, str]]:
    for item in items:
        name, mark, value = item.rpartition("=")
        if not mark or not name or not value:
            raise SettingsError(f"{option} {item} is not NAME=VALUE")
        yield name, value


def _files(arguments: argparse.Namespace, board: Board, data: Mapping[str, Any]) -> Iterator[Path]:
    """Write the requested files, and yield their paths."""
    from harness.leaderboard.text_render import csv_tables, is_table, markdown

    if arguments.csv:
        tables = csv_tables(data)
        stem = arguments.csv.name.removesuffix(".csv")
        for name, text in tables.items():
            path = arguments.csv if name == "solvers" else arguments.csv.with_name(f"{stem}.{name}.csv")
            if text:
                write_text(path, text)
                yield path
            elif is_table(name, path):
                # It belongs to an earlier board.
                path.unlink()
    if arguments.markdown:
        write_text(arguments.markdown, markdown(board))
        yield arguments.markdown
    if arguments.html:
        from harness.leaderboard.page import page

        write_text(arguments.html, page(board, title=arguments.title))
        yield arguments.html
    if arguments.plots:
        from harness.leaderboard.plots import plots, render

        for plot in plots(board):
            for kind in ("pdf", "svg"):
                path = arguments.plots / f"{plot.name}.{kind}"
                write_bytes(path, render(plot, kind=kind).data)
                yield path
    if arguments.save_pool:
        yield _save_pool(arguments.save_pool, board)


def _save_pool(path: Path, board: Board) -> Path:
    pool: dict[str, Any] = {r["solver"]: r["ability"]["value"] for r in board.solvers if r.get("ability")}
    named = {name: pool[name] for name in board.about["reference_pool"] if name in pool}
    if not named:
        raise SettingsError("--save-pool needs a store of ssr play in which solvers attempted bugs")
    write_text(path, json.dumps({"schema_version": 1, "pool": named}, indent=1) + "\n")
    return path


def _submissions(arguments: argparse.Namespace) -> list[Path]:
    if not arguments.submission:
        return []
    from harness.leaderboard.loading import results_of
    from harness.leaderboard.submissions import Submission, write_submissions

    submission = Submission(
        arguments.date or f"{datetime.now(UTC):%Y%m%d}", arguments.split, arguments.dataset, arguments.task
    )
    runs = results_of(arguments.run_folder)
    if not runs:
        raise SettingsError("--submission needs a folder of ssr run or ssr eval; the given runs include none")
    return write_submissions(arguments.submission, runs, submission)


@contextlib.contextmanager
def _store_write_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreWriteError(f"{error.filename or 'the file'}: {os_error_advice(error, option='')}") from None
