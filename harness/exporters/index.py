"""Index the rollouts and artifacts of sources in a temporary database, so that any number can be read by task."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from harness.exporters.skipped import damaged

_TABLES = """
CREATE TABLE tasks (id TEXT PRIMARY KEY, source INTEGER, folder TEXT, repository TEXT, tree TEXT, strategy TEXT,
    operator TEXT, function TEXT, injector TEXT, nth INTEGER, rollout TEXT, spare INTEGER);
CREATE TABLE rollouts (id TEXT PRIMARY KEY, source INTEGER, location TEXT, first INTEGER, task TEXT, role TEXT,
    model TEXT, attempt INTEGER, resolved INTEGER, repository TEXT DEFAULT '', tree TEXT DEFAULT '');
CREATE TABLE injections (rollout TEXT PRIMARY KEY, valid INTEGER, strategy TEXT, operator TEXT, artifact TEXT,
    change TEXT, reason TEXT);
CREATE TABLE episodes (artifact TEXT, change TEXT, project TEXT, repeated INTEGER, reward REAL, rate REAL);
CREATE TABLE project_trees (repository TEXT, tree TEXT, PRIMARY KEY (repository, tree));
CREATE TABLE judge_rewards (rollout TEXT, reward REAL, score REAL);
"""
_INDICES = """
CREATE INDEX by_task ON rollouts (task, role, repository, model, attempt, id);
CREATE INDEX grades ON rollouts (task, model, resolved) WHERE role = 'solver';
CREATE INDEX by_artifact ON episodes (artifact);
CREATE INDEX by_change ON episodes (change);
CREATE INDEX by_rollout ON judge_rewards (rollout);
CREATE INDEX by_tree ON tasks (tree);
"""


class RolloutLocation(NamedTuple):
    """Where a rollout is stored."""

    id: str
    source: int
    location: str
    """The name of its folder, or its location in a source of records."""
    repository: str
    tree: str


class Index:
    """The database, in a file that other processes can read once everything has been added."""

    def __init__(self, path: Path | None = None) -> None:
        """path: the file of an index that is complete; None for a new one, whose file is removed when it is closed."""
        self._temporary = tempfile.TemporaryDirectory(prefix="ssr-export-") if path is None else None
        self.path = path or Path(self._temporary.name if self._temporary else "", "index.db")
        try:
            self._table = sqlite3.connect(self.path)
            self._table.row_factory = sqlite3.Row
            if path is None:
                self._table.execute("PRAGMA journal_mode = OFF")
                self._table.execute("PRAGMA synchronous = OFF")
                self._table.executescript(_TABLES)
        except BaseException:
            if self._temporary is not None:
                self._temporary.cleanup()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._table.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def add(self, table: str, **values: Any) -> bool:
        """Add a row; False if its key exists already. Raises SkippedError for values that SQLite cannot store."""
        query = f"INSERT OR IGNORE INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"
        try:
            return self._table.execute(query, tuple(values.values())).rowcount == 1
        except (UnicodeEncodeError, OverflowError) as error:
            raise damaged(f"a field holds a string or number that cannot be stored: {type(error).__name__}") from None

    def add_rollout(self, **values: Any) -> bool:
        """Add a rollout; False if it exists already. One in its own folder takes precedence over its replays."""
        if self.add("rollouts", **values):
            return True
        if values["first"]:
            sets = ", ".join(f"{name} = ?" for name in values)
            query = f"UPDATE rollouts SET {sets} WHERE id = ? AND first = 0"
            self._table.execute(query, (*values.values(), values["id"]))
        return False

    def add_task(self, **values: Any) -> None:
        """Add an artifact; if sources disagree about it, the least values count, in whatever order they are read."""
        self.add("project_trees", repository=values["repository"], tree=values["tree"])
        if self.add("tasks", **values):
            return
        existing = self.task(values["id"])
        assert existing is not None
        columns = [n for n in values if n not in ("id", "source")]
        if [values[n] for n in columns] < [existing[n] for n in columns]:
            sets = ", ".join(f"{name} = ?" for name in values)
            self._table.execute(f"UPDATE tasks SET {sets} WHERE id = ?", (*values.values(), values["id"]))

    def close_filling(self) -> None:
        """Work out the project of each rollout, once everything has been added."""
        self._table.executescript(_INDICES)
        self._table.execute(
            "UPDATE rollouts SET (repository, tree) = (SELECT repository, tree FROM tasks WHERE id = task) "
            "WHERE role = 'solver' AND EXISTS (SELECT 1 FROM tasks WHERE id = task)"
        )
        # An injector's task is a tree; episodes identify a rejected bug by its change.
        self._table.execute("CREATE TABLE names (tree TEXT PRIMARY KEY, name TEXT)")
        self._table.execute(
            "INSERT OR IGNORE INTO names SELECT tree, MIN(repository) FROM tasks WHERE repository != '' GROUP BY tree"
        )
        self._table.execute(
            "INSERT OR IGNORE INTO names SELECT r.task, MIN(o.project) FROM rollouts r JOIN injections i ON "
            "i.rollout = r.id JOIN episodes o ON o.change = i.change WHERE i.change != '' GROUP BY r.task"
        )
        self._table.execute(
            "UPDATE rollouts SET tree = task, repository = COALESCE((SELECT name FROM names WHERE tree = task), '') "
            "WHERE role = 'injector' AND repository = ''"
        )
        self._table.commit()

    def count_rollouts(self) -> int:
        """Return the number of rollouts."""
        row = self._one("SELECT COUNT(*) FROM rollouts")
        assert row is not None
        return int(row[0])

    def groups(self) -> Iterator[tuple[str, str]]:
        """Yield the tasks and roles of the rollouts, in a fixed order: project by project."""
        query = "SELECT task, role FROM rollouts GROUP BY task, role ORDER BY MIN(repository), task, role"
        yield from ((row["task"], row["role"]) for row in self._cursor(query))

    def rollouts(self, task: str, role: str) -> Iterator[RolloutLocation]:
        """Yield the locations of the rollouts of one role at a task."""
        query = (
            "SELECT id, source, location, repository, tree FROM rollouts WHERE task = ? AND role = ? "
            "ORDER BY repository, model, attempt, id"
        )
        yield from (RolloutLocation(*row) for row in self._cursor(query, task, role))

    def rollout(self, name: str) -> RolloutLocation:
        """Return the location of a rollout; raises KeyError if the id is unknown."""
        query = "SELECT id, source, location, repository, tree FROM rollouts WHERE id = ?"
        row = self._one(query, name)
        if row is None:
            raise KeyError(name)
        return RolloutLocation(*row)

    def tasks(self) -> Iterator[sqlite3.Row]:
        """Yield the artifacts that are not spare, in a fixed order."""
        yield from self._cursor("SELECT * FROM tasks WHERE spare = 0 ORDER BY repository, id")

    def task(self, name: str) -> sqlite3.Row | None:
        """Return the row of an artifact; None if the id is unknown."""
        return self._one("SELECT * FROM tasks WHERE id = ?", name)

    def injection(self, rollout: str) -> sqlite3.Row | None:
        """Return the result of an injector's rollout; None if it does not exist."""
        return self._one("SELECT * FROM injections WHERE rollout = ?", rollout)

    def episodes(self, artifact: str) -> list[sqlite3.Row]:
        """Return the distinct rewards and solve rates in the episodes of an artifact."""
        query = "SELECT DISTINCT repeated, reward, rate FROM episodes WHERE artifact = ? ORDER BY 1, 2, 3"
        return self._table.execute(query, (artifact,)).fetchall()

    def judge_rewards(self, rollout: str) -> list[sqlite3.Row]:
        """Return the distinct rewards and scores that judges gave a rollout."""
        query = "SELECT DISTINCT reward, score FROM judge_rewards WHERE rollout = ? ORDER BY 1, 2"
        return self._table.execute(query, (rollout,)).fetchall()

    def solve_rate(self, task: str, model: str | None = None) -> tuple[float | None, int]:
        """Return the solve rate of a task and the number of graded attempts, of one model or of all."""
        query = "SELECT SUM(resolved), COUNT(resolved) FROM rollouts WHERE role = 'solver' AND task = ?"
        values = () if model is None else (model,)
        row = self._one(query + (" AND model = ?" if values else ""), task, *values)
        assert row is not None
        return (row[0] / row[1], row[1]) if row[1] else (None, 0)

    def trees(self) -> Iterable[tuple[str, str]]:
        """Return the name and tree of each project, for each of its trees."""
        query = "SELECT repository, tree FROM project_trees UNION SELECT repository, tree FROM rollouts ORDER BY 1, 2"
        return [(row[0], row[1]) for row in self._table.execute(query)]

    def stores_of(self, tree: str) -> list[int]:
        """Return the numbers of the sources that may hold a tree's files."""
        query = "SELECT source FROM tasks WHERE tree = ? UNION SELECT source FROM rollouts WHERE tree = ? ORDER BY 1"
        return [row[0] for row in self._table.execute(query, (tree, tree))]

    def _cursor(self, query: str, *values: object) -> Iterator[sqlite3.Row]:
        yield from self._table.execute(query, values)

    def _one(self, query: str, *values: object) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._table.execute(query, values).fetchone()
        return row
