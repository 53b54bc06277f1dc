"""Make the lists that the weights of a language model's columns are fitted to: candidates of static bugs, some read.

Each list is ranked by a policy that did not learn from the project of the bug, so that its logits are those that it
gives to code it has not seen.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.local_models.scoring import Scorer, Variant
from harness.solvers.search.arrays import load_arrays
from harness.solvers.search.language import COLUMNS, GLANCE, FunctionReader, Place, first_within, function_tokens
from harness.solvers.search.policy import Policy
from harness.storage.atomic_write import write_bytes
from harness.training.search.examples import Bug, is_right, list_repairs
from harness.training.search.reversal import Reversal

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

WHOLE_LIST = 10**9
"""The budget in tokens that is enough for every list."""
_PROBE_LINES = 10
_NOTHING = "pass"


@dataclass(frozen=True, slots=True)
class ReadList:
    """The candidates of a bug that has a right one, in the order in which a model reads them."""

    project: str
    operator: str
    policy: Floats
    """The policy's logit of each candidate."""
    glances: Floats
    """How likely the first changed token of each candidate is; see `FunctionReader.glances`."""
    right: Flags
    """Whether each candidate gives the original code."""
    rows: Floats
    """The columns of each candidate, shape (candidates, columns); see `language.COLUMNS`. NaN if it was not read."""
    cpu_s: float
    """Seconds of processor time of the model."""

    @property
    def was_read(self) -> Flags:
        """Whether each candidate was read by the model."""
        return ~np.isnan(self.rows[:, 0])


def read_lists(
    bugs: Iterator[Bug], project: str, policy: Policy, scorer: Scorer, *, count: int, most_bugs: int, tokens: int
) -> Iterator[ReadList]:
    """Yield the lists of at most `count` bugs with a right candidate, among the first `most_bugs`.

    tokens: budget of one list.
    """
    # The first call also loads the model, which is no cost of a bug.
    scorer.open(_NOTHING)
    for _, bug in zip(range(most_bugs), bugs, strict=False):
        if not count:
            return
        listed = list_repairs(bug, policy.generator)
        if listed is None:
            continue
        reversal = Reversal(listed.source, listed.scope, listed.original)
        right = [is_right(reversal, repair) for repair in listed.repairs]
        if not any(right):
            continue
        count -= 1
        logits = policy.unsharpened(listed.source, listed.scope, listed.repairs)
        begin = time.thread_time()
        reader = FunctionReader(scorer, Place(listed.source, listed.scope))
        glances = reader.glances(listed.repairs)
        order = sorted(range(len(logits)), key=lambda i: -(logits[i] + GLANCE * glances[i]))
        repairs = [listed.repairs[i] for i in order]
        left = max(0, tokens - function_tokens(Place(listed.source, listed.scope)))
        rows = np.full((len(repairs), len(COLUMNS)), np.nan)
        for index, row in enumerate(reader.columns(repairs[: first_within(repairs, left)])):
            rows[index] = row if row is not None else np.nan
        yield ReadList(
            project,
            bug.operator,
            np.array([logits[i] for i in order]),
            np.array([glances[i] for i in order]),
            np.array([right[i] for i in order]),
            rows,
            time.thread_time() - begin,
        )


def tokens_per_second(scorer: Scorer) -> int:
    """Return how many tokens the model reads in a second of this thread's processor time, in tens."""
    lines = [f"    value_{n} = compute(value_{n - 1}, {n}) if value_{n - 1} else None" for n in range(1, _PROBE_LINES)]
    text = "def probe(value_0):\n" + "\n".join(lines)
    scorer.open(_NOTHING)
    begin = time.thread_time()
    reader = scorer.open(text)
    # What a server reads are variants.
    if not reader.tokens:
        # A server reads nothing but variants.
        reader.read([Variant(text, len(text), len(text))], after=0)
    speed = reader.tokens / max(1e-6, time.thread_time() - begin)
    return max(10, 10 * round(speed / 10))


def save_lists(path: Path, lists: Sequence[ReadList]) -> None:
    """Write lists to a file, which is complete or not there."""
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        project=np.array([e.project for e in lists], dtype=str),
        operator=np.array([e.operator for e in lists], dtype=str),
        cpu_s=np.array([e.cpu_s for e in lists], dtype=np.float64),
        sizes=np.array([len(e.right) for e in lists], dtype=np.int32),
        policy=np.concatenate([np.zeros(0), *(e.policy for e in lists)]),
        glances=np.concatenate([np.zeros(0), *(e.glances for e in lists)]),
        right=np.concatenate([np.zeros(0, bool), *(e.right for e in lists)]),
        rows=np.concatenate([np.zeros((0, len(COLUMNS))), *(e.rows for e in lists)]),
    )
    write_bytes(path, buffer.getvalue())


def load_lists(path: Path) -> list[ReadList]:
    """Return the lists in a file; raises ValueError or OSError if it cannot be read."""
    kinds = {"project": ("U", 1), "operator": ("U", 1), "cpu_s": ("f", 1), "sizes": ("i", 1)}
    parts = {"policy": ("f", 1), "glances": ("f", 1), "right": ("b", 1), "rows": ("f", 2)}
    arrays = load_arrays(path, {**kinds, **parts}, most_bytes=sys.maxsize)
    sizes = arrays["sizes"]
    if len({len(arrays[name]) for name in kinds}) != 1 or {len(arrays[name]) for name in parts} != {sizes.sum()}:
        raise ValueError(f"{path} is damaged: its columns have different lengths")
    if (
        arrays["rows"].shape[1] != len(COLUMNS)
        or (sizes < 1).any()
        or not all(np.isfinite(arrays[name]).all() for name in ("policy", "glances"))
    ):
        raise ValueError(f"{path} is damaged: a number is out of range")
    ends = np.cumsum(sizes).astype(int).tolist()
    columns = (arrays[name].tolist() for name in kinds)
    return [
        ReadList(
            project,
            operator,
            arrays["policy"][end - size : end],
            arrays["glances"][end - size : end],
            arrays["right"][end - size : end],
            arrays["rows"][end - size : end],
            cpu_s,
        )
        for project, operator, cpu_s, size, end in zip(*columns, ends, strict=True)
    ]
