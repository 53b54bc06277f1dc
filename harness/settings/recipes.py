"""Define the settings of `ssr recipe TRAINER`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from harness.settings.plan import CommandSettings
from pytest_ssr.errors import SettingsError
from pytest_ssr.options import AT_LEAST_0, AT_LEAST_1, MORE_THAN_0, option, required, shared

PROMPT_TOKENS = 4096
"""Tokens of a prompt for verl, and of one reply for slime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeSettings(CommandSettings):
    """What every recipe has."""

    source: Path = required(
        "SOURCE", "a project whose bugs are repaired, or a dataset; the same path on all nodes", is_argument=True
    )
    out: Path = required("DIR", "folder for the recipe; the same path on all nodes")
    model: str = required("NAME", "the model: a folder, or owner/name on the hub", may_be_folder=True)
    nodes: int = option(1, "N", "nodes with GPUs", bound=AT_LEAST_1, is_own=True)
    gpus_per_node: int = option(8, "N", "GPUs of each of them", bound=AT_LEAST_1)
    sandboxes: str = option(
        "ray", "WHERE", "addresses of sandbox servers, or ray: on nodes that join the cluster for that", is_own=True
    )
    slots: int = option(64, "N", "sandboxes at the same time", bound=AT_LEAST_1, is_own=True)
    tasks: int = option(
        0, "N", "tasks of an update; 0 for as many as the nodes have GPUs", bound=AT_LEAST_0, is_own=True
    )
    group: int = option(8, "N", "rollouts of each task", bound=AT_LEAST_1, is_own=True)
    updates: int = option(300, "N", "updates of the weights", bound=AT_LEAST_1, is_own=True)
    context: int = option(32768, "N", "tokens of a whole rollout", bound=AT_LEAST_1, is_own=True)
    tensor_parallel: int = option(
        0, "N", "GPUs that share a layer, and that an engine has; 0 for two, if a node has them", bound=AT_LEAST_0
    )
    context_parallel: int = option(
        0, "N", "GPUs that share a sequence; 0 for two, if a node has them", bound=AT_LEAST_0
    )
    steps: int = option(40, "N", "most replies of a rollout", bound=AT_LEAST_1, is_own=True)
    judge: str = option("", "MODEL", "add the score process of this judge to the reward", is_own=True)
    process: float = option(0.2, "W", "weight of the score process", bound=MORE_THAN_0, is_own=True)
    checkpoints: Path | None = option(
        None, "DIR", "folder for checkpoints that all nodes share (default: checkpoints in the recipe)", is_own=True
    )
    store: Path | None = shared(
        "store", help="store of the bugs (default: .ssr in the project), or of a dataset (default: store in the recipe)"
    )
    python: Path | None = shared("python")
    repos: Path | None = option(None, "DIR", "folder of local clones of a dataset, named owner__name")
    images: Literal["docker", "apptainer"] | None = option(None, "KIND", "run each row of a dataset in its own image")

    @property
    def gpus(self) -> int:
        """The number of all GPUs."""
        return self.nodes * self.gpus_per_node

    @property
    def tasks_of_update(self) -> int:
        """The number of tasks of an update."""
        return self.tasks or self.gpus

    @property
    def parallel(self) -> tuple[int, int]:
        """The GPUs that share a layer, and those that share a sequence."""
        most = min(2, self.gpus_per_node)
        tensor = self.tensor_parallel or most
        return tensor, self.context_parallel or (most if self.gpus % (tensor * most) == 0 else 1)

    def check(self) -> None:
        """Refuse numbers that do not divide the GPUs or the rollouts, and what excludes each other."""
        tensor, context = self.parallel
        if self.gpus_per_node % tensor:
            raise SettingsError(
                f"--tensor-parallel {tensor} does not divide the {self.gpus_per_node} GPUs of a node",
                option="tensor-parallel",
            )
        if self.gpus % (tensor * context):
            raise SettingsError(
                f"--context-parallel {context} times --tensor-parallel {tensor} does not divide {self.gpus} GPUs",
                option="context-parallel",
            )
        rollouts = self.tasks_of_update * self.group
        if rollouts % self.gpus:
            raise SettingsError(
                f"an update has {rollouts} rollouts (--tasks times --group), which is no multiple of {self.gpus} GPUs",
                option="tasks",
            )
        if self.context <= PROMPT_TOKENS:
            raise SettingsError(f"--context must be more than the {PROMPT_TOKENS} of a prompt", option="context")
        addresses = () if self.sandboxes == "ray" else self.sandboxes.split(",")
        if not all(address.startswith(("http://", "https://")) for address in addresses):
            raise SettingsError(f"--sandboxes takes ray or URLs, not {self.sandboxes!r}", option="sandboxes")
        if addresses and self.images is not None:
            raise SettingsError("--images needs --sandboxes ray", option="images")
        if "process" in self.typed and not self.judge:
            raise SettingsError("--process has no effect without --judge", option="process")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimeRecipeSettings(RecipeSettings):
    """Write a folder that trains with slime on a cluster: a model repairs bugs (GRPO)."""

    example: ClassVar[str] = (
        "ssr recipe slime . --model /models/Qwen3-4B --shape qwen3-4B --nodes 4 --sandboxes ray --out run"
    )
    shape: str = required("NAME", "the model's file in slime's scripts/models, without .sh")
    slime: Path = option(Path("/root/slime"), "DIR", "slime's folder on the nodes")
    megatron: Path = option(Path("/root/Megatron-LM"), "DIR", "Megatron's folder on the nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerlRecipeSettings(RecipeSettings):
    """Write a folder that trains with verl on a cluster: a model repairs bugs (GRPO)."""

    example: ClassVar[str] = "ssr recipe verl rows.jsonl --model Qwen/Qwen3-4B --nodes 4 --sandboxes ray --out run"
