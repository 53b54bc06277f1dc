"""Run by hand: verifiers and TRL read a folder of `ssr export --format harbor --images PREFIX`, and TRL steps a task.

Run: `python tests/peers/harbor_readers_peer.py verifiers tasks/train` in an environment with verifiers 0.4 and harbor,
or `... trl tasks/train` in one with trl 1.16 and harbor, which needs Docker. TRL grades in the agent's container: its
tasks must be plain. It ends with 1 if a task does not load, the reference solution does not get 1, or nothing gets
more than 0.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def read_by_verifiers(folder: Path) -> bool:
    """Return whether its taskset loads each task with both images, the folder of the project and the artifact."""
    from verifiers.v1.tasksets.harbor import taskset

    # The taskset downloads packages; these are here.
    taskset.dataset_dir = lambda config: folder
    tasks = [task.data for task in taskset.HarborTaskset(taskset.HarborConfig(dataset="local")).load()]
    for task in tasks:
        print(f"{task.name}: image {task.image}, verifier {task.verifier_image}")
    return bool(tasks) and all(
        "@sha256:" in task.image
        and "@sha256:" in task.verifier_image
        and [artifact.source for artifact in task.artifacts] == [task.workdir]
        for task in tasks
    )


def stepped_by_trl(folder: Path) -> bool:
    """Return whether a task gets 1 for the reference solution and 0 for nothing."""
    from trl.experimental.harbor import HarborEnv, HarborSpec

    spec = HarborSpec(str(folder), agent=HarborEnv)
    row = spec.train_dataset[0]
    rewards = []
    for is_solved in (False, True):
        environment: Any = spec.environment_factory()
        environment.reset(task_dir=row["task_dir"])
        try:
            if is_solved:
                environment._run(environment._env.upload_dir(Path(row["task_dir"], "solution"), "/solution"))
                print(environment._exec("sh /solution/solve.sh"))
            rewards += spec.reward_funcs(environments=[environment])
        finally:
            environment._run(environment._stop())
    print(f"{len(spec.train_dataset)} tasks; rewards of nothing and of the reference solution: {rewards}")
    return rewards == [0.0, 1.0]


if __name__ == "__main__":
    read = {"verifiers": read_by_verifiers, "trl": stepped_by_trl}[sys.argv[1]]
    sys.exit(0 if read(Path(sys.argv[2]).resolve()) else 1)
