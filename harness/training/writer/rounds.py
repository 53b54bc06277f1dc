"""Let a language model learn after each round of self-play, from what the round has proven.

After a round, its proven bugs become rows: the lines of the original are right, and so are those of each attempt that
was graded as resolved. Half of them name a failing test. Static bugs of the same projects fill the round's updates, so
that the model does not forget them. What is learned is a LoRA adapter on that of the round before.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.local_models.torch_model import all_threads
from harness.storage.atomic_write import write_text
from harness.training.language.contamination import Excluded, require_clean, with_owner
from harness.training.language.models import require_packages
from harness.training.language.plan import Adapter, Base, Method, Optimization, Plan
from harness.training.language.run_folder import RunFolder
from harness.training.language.training import train_on_rows
from harness.training.search.examples import Bug
from harness.training.search.loop import Learned
from harness.training.search.sources import SourceFolder
from harness.training.writer.row_file import RowSettings, write_row_file
from harness.training.writer.static_rows import region_bugs

BATCH, ACCUMULATION = 2, 4
ROWS = BATCH * ACCUMULATION
"""The rows of an update."""
MODELS = "models"
_PROVEN_SHARE = 0.75
"""The largest share of proven bugs in a round's rows."""
_PER_PROJECT = 200
_WARMUP = 0.1


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """How much is learned after each round."""

    updates: int
    layers: int
    """Uppermost layers that are adapted; 0 for all."""
    learning_rate: float


@dataclass(slots=True)
class RoundLearner:
    """Trains a model after each round."""

    model: str
    """What `--lm` named."""
    settings: RoundSettings
    sources: Sequence[SourceFolder]
    """Their static bugs are learned from, too."""
    folder: Path
    """Has a folder for each run, with its rows and its models."""
    injectors: str
    seed: int
    jobs: int
    watch: Callable[[str], None]
    _run_key: str = ""

    def check(self, run: str) -> None:
        """Make the rows of static bugs. Raises what a training would raise for its packages and its projects."""
        self._run_key = run
        require_packages()
        require_clean((with_owner(s.name, [s.folder]) for s in self.sources), Excluded(()), forced=False)
        if not self._static.is_file():
            rows = RowSettings(self.injectors, _PER_PROJECT, 0, self.seed, self.jobs)
            self._static.parent.mkdir(parents=True, exist_ok=True)
            write_row_file(self.sources, self._static, rows, self.watch)

    def learn(self, number: int, bugs: Sequence[tuple[str, Bug]]) -> Learned:
        """Return the adapter of a round, which is trained unless that was done before; see `loop.Learner`."""
        before = self._run(number - 1).model if number > 1 else Path(self.model)
        folder, rows = self._run(number), self._own / f"round-{number:03d}.jsonl"
        proven = self._proven_rows(number, bugs)
        if not rows.is_file():
            static = self._static_rows(number, self.settings.updates * ROWS - len(proven))
            mixed = [*proven, *static]
            random.Random(f"{self.seed}:{number}").shuffle(mixed)
            write_text(rows, "".join(f"{json.dumps(row)}\n" for row in mixed))
        plan = Plan(
            Method.SFT,
            folder.path,
            Base(str(before)),
            Adapter(layers=self.settings.layers),
            optimization=Optimization(
                updates=self.settings.updates,
                batch=BATCH,
                accumulation=ACCUMULATION,
                learning_rate=self.settings.learning_rate,
                warmup=_WARMUP,
            ),
            seed=self.seed,
        )
        self.watch(f"round {number}: the language model learns")
        folder.path.mkdir(parents=True, exist_ok=True)
        with all_threads():
            report = train_on_rows([rows], plan, lambda text: self.watch(f"round {number}, language model: {text}"))
        return Learned(str(folder.model), report["rows"], len(proven), report["loss_first"], report["loss_last"])

    @property
    def _own(self) -> Path:
        return self.folder / self._run_key

    @property
    def _static(self) -> Path:
        return self._own / "static.jsonl"

    def _run(self, number: int) -> RunFolder:
        return RunFolder(self._own / f"round-{number:03d}")

    def _proven_rows(self, number: int, bugs: Sequence[tuple[str, Bug]]) -> list[dict[str, Any]]:
        rng = random.Random(f"proven:{self.seed}:{number}")
        rows = [row for name, bug in bugs for row in _rows_of(name, bug, rng)]
        rng.shuffle(rows)
        return rows[: round(_PROVEN_SHARE * self.settings.updates * ROWS)]

    def _static_rows(self, number: int, count: int) -> list[dict[str, Any]]:
        """Return rows that the rounds before did not have, until all were used."""
        rows = [json.loads(line) for line in self._static.read_text(encoding="utf-8").splitlines()]
        random.Random(f"static:{self.seed}").shuffle(rows)
        first = (number - 1) * self.settings.updates * ROWS
        return [rows[(first + place) % len(rows)] for place in range(min(count, len(rows)))]


def _rows_of(project: str, bug: Bug, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield a row for each way to repair a proven bug that is known, without repetitions."""
    seen = set[str]()
    for right in dict.fromkeys([bug.original, *(bug.repairs or ())]):
        for found in region_bugs(iter([replace(bug, original=right)])):
            for failure in (None, bug.failure):
                row = found.row(rng.choice(found.smallest), project, failure=failure)
                content = json.dumps(row["messages"])
                if content not in seen:
                    seen.add(content)
                    yield row
