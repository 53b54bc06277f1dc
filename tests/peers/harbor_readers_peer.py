"""Run by hand: verifiers, OpenEnv, SkyRL and TRL read a folder of `ssr export --format harbor --images PREFIX`.

Run: `python tests/peers/harbor_readers_peer.py READER tasks/train` with one of these:

| reader | what it does | environment |
|---|---|---|
| `verifiers` | loads each task | verifiers 0.4.0 and harbor |
| `verifiers-docker`, `verifiers-apptainer` | steps a task in two containers | the same, with Docker's default bridge, or Apptainer |
| `openenv` | loads each task, and terminus-2 with a scripted model plays two in Docker | openenv 0.10.0 and harbor |
| `skyrl` | loads each task | harbor and loguru, with a checkout of SkyRL in `PYTHONPATH` |
| `skyrl-generator` | plays two tasks without Docker, with terminus-2 and a scripted model | the same, and what SkyRL's generators import |
| `trl` | loads each task, and steps one in Docker | trl 1.16 and harbor |

`openenv` and `skyrl-generator` need images with tmux. TRL grades in the agent's container, and Apptainer's containers have
no other users: both need plain tasks. The script ends with 1 if a task does not load, the reference solution does not get
1, or nothing gets more than 0.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import importlib
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from harbor_environment_peer import ENVIRONMENT, ScriptedModel, message, response, serving


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


def read_by_skyrl(folder: Path) -> bool:
    """Return whether SkyRL's dataset lists each task, and its template of a trial takes each."""
    dataset = importlib.import_module("examples.train_integrations.harbor.dataset")
    yaml = importlib.import_module("yaml")
    from harbor.models.task.task import Task
    from harbor.models.trial.config import TrialConfig

    template = yaml.safe_load(
        Path(dataset.__file__).with_name("harbor_trial_config").joinpath("default.yaml").read_text()
    )
    rows = list(dataset.HarborTaskDataset([str(folder)]))
    for row in rows:
        TrialConfig.model_validate({**template, "task": {"path": row["prompt"]}})
    print(f"{len(rows)} tasks, the first {rows[0]}")
    listed = sorted(Path(row["prompt"]) for row in rows)
    return listed == sorted(path.parent for path in folder.glob("*/task.toml")) and all(map(Task.is_valid_dir, listed))


def stepped_by_skyrl(folder: Path) -> bool:
    """Return whether its generator gets 1 for a task that the model repairs and 0 for another, with masks of tokens."""
    dataset = importlib.import_module("examples.train_integrations.harbor.dataset")
    generators = importlib.import_module("examples.train_integrations.harbor.harbor_generator")
    base = importlib.import_module("skyrl.train.generators.base")
    yaml = importlib.import_module("yaml")

    template = yaml.safe_load(
        Path(dataset.__file__).with_name("harbor_trial_config").joinpath("default.yaml").read_text()
    )
    template["agent"]["kwargs"]["record_terminal_session"] = False
    prompts = sorted(row["prompt"] for row in dataset.HarborTaskDataset([str(folder)]))
    model = ScriptedModel([Path(prompt) for prompt in prompts])
    expected = [model.expected("terminus-2", Path(prompt).name) for prompt in prompts]
    prompts = [prompts[expected.index(1.0)], prompts[expected.index(0.0)]]

    class Client:
        def get_endpoint_url(self) -> str:
            assert model.served is not None
            return model.served.url.removesuffix("/v1")

        async def finish_session(self, session: str) -> None:
            """End nothing."""

    engine = types.SimpleNamespace(served_model_name="tiny")
    settings = types.SimpleNamespace(
        inference_engine=engine, step_wise_trajectories=True, merge_stepwise_output=True, apply_overlong_filtering=False
    )
    with serving(*[model] * 64) as served, tempfile.TemporaryDirectory() as trials:
        model.served = served
        # Its own default is a service that rents containers.
        template |= {"trials_dir": trials, "environment": {"import_path": ENVIRONMENT}}
        generator = generators.HarborGenerator(settings, template, Client(), None, 32768)
        identities = [base.TrajectoryID(str(n), 0) for n in range(len(prompts))]
        output = asyncio.run(generator.generate({"prompts": prompts, "trajectory_ids": identities}))
    rewards = [reward for reward, last in zip(output["rewards"], output["is_last_step"], strict=True) if last]
    print(f"{len(expected)} tasks; rewards of a repair and of nothing: {rewards}; {output['stop_reasons']}")
    return rewards == [1.0, 0.0] and all(output["loss_masks"][0])


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


async def graded_by_verifiers(task: Any, runtime: Any, command: str) -> dict[str, float]:
    """Return the reward of a command, which the task's own verifier gives in a container of its own."""
    import verifiers.v1 as vf
    from verifiers.v1.configs.agent import AgentConfig
    from verifiers.v1.runtimes import provision_runtime
    from verifiers.v1.state import state_cls
    from verifiers.v1.tasksets.harbor.taskset import verifier_box_data
    from verifiers.v1.trace import AgentInfo, TraceTask
    from verifiers.v1.utils.compile import resolve_runtime_config

    named = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    agent = AgentInfo(config=AgentConfig(runtime=runtime), name="peer", trainable=False)
    trace = vf.Trace(task=named, state=state_cls(type(task))(), agent=agent)
    # The steps of HarborEnv with a command instead of a model.
    async with provision_runtime(resolve_runtime_config(runtime, task), env=task.runtime_env()) as container:
        await container.prepare_setup()
        await task.setup(container)
        await container.prepare_execution([])
        done = await container.run(["sh", "-c", command], {})
        assert done.exit_code == 0, done.stderr
        await task.finalize(trace, container)
    grader = type(task)(verifier_box_data(task.data), task.config)
    async with provision_runtime(resolve_runtime_config(runtime, grader), env=grader.runtime_env()) as container:
        await container.prepare_setup()
        await grader.setup(container)
        await vf.restore(container, trace.state.artifacts)
        await grader.stage_verifier(trace, container)
        await container.prepare_execution([])
        return dict(await grader.run_verifier(container, trace))


def stepped_by_verifiers(folder: Path, kind: str) -> bool:
    """Return whether a task gets 1 for the reference solution and 0 for nothing in containers of a kind."""
    import verifiers.v1 as vf
    from verifiers.v1.runtimes.apptainer import ApptainerConfig
    from verifiers.v1.tasksets.harbor import taskset

    taskset.dataset_dir = lambda config: folder
    task = next(iter(taskset.HarborTaskset(taskset.HarborConfig(dataset="local")).load()))
    repair = base64.b64encode(Path(task.data.task_dir, "solution", "repair.tar.gz").read_bytes()).decode()
    runtime = {"docker": vf.DockerConfig, "apptainer": ApptainerConfig}[kind]()
    rewards = [
        asyncio.run(graded_by_verifiers(task, runtime, command))
        for command in ("true", f"echo {repair} | base64 -d | tar -xz -C /testbed")
    ]
    print(f"{task.data.name}: rewards of nothing and of the reference solution: {rewards}")
    return [given["reward"] for given in rewards] == [0.0, 1.0]


class ProbedModel(ScriptedModel):
    """A scripted model that also replies to requests without an instruction, by which a server is tried."""

    def __call__(self, request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        """Return the response to a request."""
        if self.commands(request):
            return super().__call__(request)
        assert self.served is not None
        self.served.replies.append(self)
        return 200, {}, json.dumps(response(message("Hello"), request, self.served)).encode()


def stepped_by_openenv(folder: Path) -> bool:
    """Return whether terminus-2 gets 1 for a task that the model repairs, and 0 for one that it does not."""
    from openenv.harbor import seams
    from openenv.harbor.runner import run_batch
    from openenv.harbor.tasks import HarborTaskProvider

    # Without a network, the recorder of terminals cannot be installed, and the attempt takes minutes.
    seam = seams.SEAMS["terminus-2"]
    seams.SEAMS["terminus-2"] = dataclasses.replace(
        seam, kwargs=lambda *arguments: {**seam.kwargs(*arguments), "record_terminal_session": False}
    )
    tasks = [Path(task["task_id"]) for task in HarborTaskProvider([str(folder)]).list_tasks("")]
    model = ProbedModel(tasks)
    expected = [model.expected("terminus-2", task.name) for task in tasks]
    with serving(*[model] * 64) as served, tempfile.TemporaryDirectory() as trials:
        model.served = served
        results = asyncio.run(
            run_batch(
                llm_url=served.url,
                model="tiny",
                dataset=str(folder),
                task_indices=[expected.index(1.0), expected.index(0.0)],
                harness="terminus-2",
                sandbox="docker",
                expose="direct",
                trials_dir=Path(trials),
            )
        )
    rewards = [result.reward for result in results]
    print(f"{len(tasks)} tasks; rewards of a repair and of nothing: {rewards}; {[r.rewards for r in results]}")
    return rewards == [1.0, 0.0]


READERS = {
    "verifiers": read_by_verifiers,
    "verifiers-docker": lambda folder: stepped_by_verifiers(folder, "docker"),
    "verifiers-apptainer": lambda folder: stepped_by_verifiers(folder, "apptainer"),
    "openenv": stepped_by_openenv,
    "skyrl": read_by_skyrl,
    "skyrl-generator": stepped_by_skyrl,
    "trl": stepped_by_trl,
}

if __name__ == "__main__":
    sys.exit(0 if READERS[sys.argv[1]](Path(sys.argv[2]).resolve()) else 1)
