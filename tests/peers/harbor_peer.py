"""Run by hand, or by `tox -e harbor`: Harbor's own models judge what we write and what our tests write in its name.

Run: `python tests/peers/harbor_peer.py` in an environment that has harbor and this package. Trajectories of every kind
of record must be valid ATIF; the folders of trials that the tests of readers use must be valid, too, and Harbor must
agree on which rewards count. It ends with 0 when every part says what it should.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from harbor.models.trajectories import Trajectory
from harbor.models.trial.error_policy import ERROR_POLICIES
from harbor.models.trial.result import ExceptionInfo
from harbor_parts import failure, trajectory_of, trial
from rollout_parts import played, record, rows, windowed

from harness.exporters.formats import FORMATS
from harness.exporters.record import Record
from harness.exporters.record_builder import RolloutContext, record_of
from harness.records.harbor_trials import read_trial
from harness.records.messages import ASSISTANT, TOOL, Message, ToolCall
from harness.records.trajectory import ExitReason, Journal
from harness.records.trajectory import Trajectory as Rollout


def records() -> list[Record]:
    """Return records of every kind: windows, rejected and scripted replies, aborted, malformed, without calls."""
    scripted = played(sampled=False, ids=False)
    rejected = (Message(ASSISTANT, "no", (ToolCall.parse("c9", "bash", "{oh"),)),)
    scripted.calls[0] = replace(scripted.calls[0], rejected=rejected, cost_usd=0.25)
    early = Journal(Rollout("r", "t", "solver", 0, "m"))
    early.message(Message(TOOL, "before all", tool_call_id="c0"))
    return [
        record(),
        record_of(windowed(), RolloutContext()),
        record(scripted, -1.0),
        record(played(end=ExitReason.INFRA), None),
        record(played(commands=())),
        record_of(early.end(ExitReason.SUBMITTED), RolloutContext()),
    ]


def main() -> int:
    """Judge everything; return 0 if Harbor accepts it all."""
    written: list[Any] = json.loads(json.dumps(rows(FORMATS["atif"], *records())))
    assert len(written) == len(records())
    for row in [*written, *(trajectory_of("look", schema_version=f"ATIF-v1.{minor}") for minor in range(9))]:
        Trajectory.model_validate(row)
    with tempfile.TemporaryDirectory() as temporary:
        for kind in ERROR_POLICIES:
            info = failure(kind, None)["exception_info"] | {"occurred_at": "2026-11-29T17:17:38Z"}
            policy = ExceptionInfo.model_validate(info).policy
            for name, given in (("told", policy.has_valid_reward), ("untold", None)):
                finished = read_trial(trial(Path(temporary), f"{kind}-{name}", **failure(kind, given)))
                assert finished is not None
                assert (finished.reward is not None) == policy.has_valid_reward, kind
    print(f"{len(written)} trajectories and {len(ERROR_POLICIES)} failures: Harbor agrees")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
