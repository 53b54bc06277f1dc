"""What there is in some sources, in a table on disk: so that rollouts can be read by task, however many there are."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

from harness.exporters.leaving import damaged

_TABLES = """
CREATE TABLE tasks (id TEXT PRIMARY KEY, source INTEGER, folder TEXT, repository TEXT, tree TEXT, strategy TEXT,
    operator TEXT, nth INTEGER, rollout TEXT, spare INTEGER);
CREATE TABLE rollouts (id TEXT PRIMARY KEY, source INTEGER, place TEXT, first INTEGER, task TEXT, role TEXT, model TEXT,
    attempt INTEGER, resolved INTEGER, repository TEXT DEFAULT '', tree TEXT DEFAULT '');
CREATE TABLE injections (rollout TEXT PRIMARY KEY, valid INTEGER, strategy TEXT, operator TEXT, artifact TEXT,
    change TEXT, why TEXT);
CREATE TABLE outcomes (artifact TEXT, change TEXT, project TEXT, repeated INTEGER, reward REAL, rate REAL);
CREATE TABLE called (repository TEXT, tree TEXT, PRIMARY KEY (repository, tree));
CREATE TABLE judged (rollout TEXT, reward REAL, score REAL);
"""
_INDICES = """
CREATE INDEX by_task ON rollouts (task, role, repository, model, attempt, id);
CREATE INDEX grades ON rollouts (task, model, resolved) WHERE role = 'solver';
CREATE INDEX by_artifact ON outcomes (artifact);
CREATE INDEX by_change ON outcomes (change);
CREATE INDEX by_rollout ON judged (rollout);
CREATE INDEX by_tree ON tasks (tree);
"""


class Place(NamedTuple):
    """Where a rollout is kept."""

    id: str
    source: int
    place: str
    """A folder's name, or an offset in bytes."""
    repository: str
    tree: str


class Index:
    """The table; it lies in a temporary file that goes with it."""

    def __init__(self) -> None:
        self._table = sqlite3.connect("")
        self._table.row_factory = sqlite3.Row
        self._table.executescript(_TABLES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._table.close()

    def add(self, table: str, **values: Any) -> bool:
        """Add a row; False where one of the same name is there already. Raises LeftOutError for what no table holds."""
        words = f"INSERT OR IGNORE INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"
        try:
            return self._table.execute(words, tuple(values.values())).rowcount == 1
        except (UnicodeEncodeError, OverflowError) as error:
            raise damaged(f"what names it is no text or number that can be kept: {type(error).__name__}") from None

    def add_rollout(self, **values: Any) -> bool:
        """Add a rollout; False where it is there already. One in its own folder counts before a replay of it."""
        if self.add("rollouts", **values):
            return True
        if values["first"]:
            sets = ", ".join(f"{name} = ?" for name in values)
            words = f"UPDATE rollouts SET {sets} WHERE id = ? AND first = 0"
            self._table.execute(words, (*values.values(), values["id"]))
        return False

    def add_task(self, **values: Any) -> None:
        """Add an artifact; of what several sources say of one, the least counts, whichever came first."""
        self.add("called", repository=values["repository"], tree=values["tree"])
        if self.add("tasks", **values):
            return
        known = self.task(values["id"])
        assert known is not None
        told = [n for n in values if n not in ("id", "source")]
        if [values[n] for n in told] < [known[n] for n in told]:
            sets = ", ".join(f"{name} = ?" for name in values)
            self._table.execute(f"UPDATE tasks SET {sets} WHERE id = ?", (*values.values(), values["id"]))

    def close_filling(self) -> None:
        """Work out which projects rollouts are of, once everything is in."""
        self._table.executescript(_INDICES)
        self._table.execute(
            "UPDATE rollouts SET (repository, tree) = (SELECT repository, tree FROM tasks WHERE id = task) "
            "WHERE role = 'solver' AND EXISTS (SELECT 1 FROM tasks WHERE id = task)"
        )
        # An injector's task is a tree; a rejected bug is known to the episodes by its change.
        self._table.execute("CREATE TABLE names (tree TEXT PRIMARY KEY, name TEXT)")
        self._table.execute(
            "INSERT OR IGNORE INTO names SELECT tree, MIN(repository) FROM tasks WHERE repository != '' GROUP BY tree"
        )
        self._table.execute(
            "INSERT OR IGNORE INTO names SELECT r.task, MIN(o.project) FROM rollouts r JOIN injections i ON "
            "i.rollout = r.id JOIN outcomes o ON o.change = i.change WHERE i.change != '' GROUP BY r.task"
        )
        self._table.execute(
            "UPDATE rollouts SET tree = task, repository = COALESCE((SELECT name FROM names WHERE tree = task), '') "
            "WHERE role = 'injector' AND repository = ''"
        )

    def groups(self) -> Iterator[tuple[str, str]]:
        """Yield tasks and roles that rollouts are of, in a fixed order: project after project."""
        words = "SELECT task, role FROM rollouts GROUP BY task, role ORDER BY MIN(repository), task, role"
        yield from ((row["task"], row["role"]) for row in self._cursor(words))

    def rollouts(self, task: str, role: str) -> Iterator[Place]:
        """Yield where the rollouts of a task are."""
        words = (
            "SELECT id, source, place, repository, tree FROM rollouts WHERE task = ? AND role = ? "
            "ORDER BY repository, model, attempt, id"
        )
        yield from (Place(*row) for row in self._cursor(words, task, role))

    def rollout(self, name: str) -> Place:
        """Return where a rollout is; raises KeyError where there is none."""
        words = "SELECT id, source, place, repository, tree FROM rollouts WHERE id = ?"
        found = self._one(words, name)
        if found is None:
            raise KeyError(name)
        return Place(*found)

    def tasks(self) -> Iterator[sqlite3.Row]:
        """Yield the artifacts that are kept, in a fixed order."""
        yield from self._cursor("SELECT * FROM tasks WHERE spare = 0 ORDER BY repository, id")

    def task(self, name: str) -> sqlite3.Row | None:
        """Return what is known of an artifact."""
        return self._one("SELECT * FROM tasks WHERE id = ?", name)

    def injection(self, rollout: str) -> sqlite3.Row | None:
        """Return what came of a rollout that injects."""
        return self._one("SELECT * FROM injections WHERE rollout = ?", rollout)

    def outcomes(self, artifact: str) -> list[sqlite3.Row]:
        """Return what the episodes of an artifact say, each thing once."""
        words = "SELECT DISTINCT repeated, reward, rate FROM outcomes WHERE artifact = ? ORDER BY 1, 2, 3"
        return self._table.execute(words, (artifact,)).fetchall()

    def judged(self, rollout: str) -> list[sqlite3.Row]:
        """Return what judges have made of a rollout's reward, each thing once."""
        words = "SELECT DISTINCT reward, score FROM judged WHERE rollout = ? ORDER BY 1, 2"
        return self._table.execute(words, (rollout,)).fetchall()

    def solve_rate(self, task: str, model: str | None = None) -> tuple[float | None, int]:
        """Return the solve rate of a task, and of how many graded attempts: those of one model, or of all."""
        words = "SELECT SUM(resolved), COUNT(resolved) FROM rollouts WHERE role = 'solver' AND task = ?"
        more = () if model is None else (model,)
        found = self._one(words + (" AND model = ?" if more else ""), task, *more)
        assert found is not None
        return (found[0] / found[1], found[1]) if found[1] else (None, 0)

    def trees(self) -> Iterable[tuple[str, str]]:
        """Return each project's name with each of its trees."""
        words = "SELECT repository, tree FROM called UNION SELECT repository, tree FROM rollouts ORDER BY 1, 2"
        return [(row[0], row[1]) for row in self._table.execute(words)]

    def stores_of(self, tree: str) -> list[int]:
        """Return which sources may hold a tree's files."""
        words = "SELECT source FROM tasks WHERE tree = ? UNION SELECT source FROM rollouts WHERE tree = ? ORDER BY 1"
        return [row[0] for row in self._table.execute(words, (tree, tree))]

    def _cursor(self, words: str, *values: object) -> Iterator[sqlite3.Row]:
        yield from self._table.execute(words, values)

    def _one(self, words: str, *values: object) -> sqlite3.Row | None:
        found: sqlite3.Row | None = self._table.execute(words, values).fetchone()
        return found
