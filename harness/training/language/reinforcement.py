"""Train on the rewards of the model's own rollouts: grpo and reinforce by TRL's GRPOTrainer on our environments.

REINFORCE has the mean reward of the group as its baseline, without division by the deviation of the rewards. Each
update is from fresh rollouts, so every ratio is 1 and nothing is clipped. Up to a constant factor this is RLOO.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from random import Random
from typing import Any

from harness.environments.task import Tasks
from harness.training.language.cpu_trainers import sharing_prompts
from harness.training.language.guarded import build, is_main, metrics_writer, save_model, train
from harness.training.language.models import (
    adapter_of,
    context_of,
    load_model,
    load_tokenizer,
    require_packages,
    require_targets,
)
from harness.training.language.plan import INJECTOR, SOLVER, Method, Plan, Policy
from harness.training.language.policy_rollouts import (
    PolicyEnvironment,
    PolicyRollouts,
    PolicyTask,
    policy_reward,
)
from harness.training.language.run_folder import RunFolder
from harness.training.language.supervised import Watch, common_arguments
from harness.training.language.training import finish, finished_report, require_tracker
from harness.training.language.update_counts import equal_updates, total
from pytest_ssr.errors import SettingsError

_ROUNDS = 64
"""Times that each task is listed in the data set, each time in another order; then the order begins again."""


def train_in_environment(
    plan: Plan, policy: Policy, environment: PolicyEnvironment, watch: Watch, namesakes: Sequence[str] = ()
) -> dict[str, Any]:
    """Train by grpo or reinforce; return the report. One that has finished is only read.

    namesakes: names of projects for the report, which may be forks of evaluation sets. Raises the errors of
    `train_on_rows`, and SandboxError if no rollout of an update has a reward.
    """
    require_packages()
    require_tracker(plan.tracking.tracker)
    folder = RunFolder(plan.out)
    folder.require_same(plan.identity())
    if (finished := finished_report(folder, plan)) is not None:
        return finished
    if not plan.optimization.updates:
        raise SettingsError(f"--updates is needed by {plan.method}: its tasks have no end", option="updates")
    arguments = _arguments(plan, policy, folder)
    rows = _rows(plan, policy, environment, folder)
    watch("loading the model")
    tokenizer, model = load_tokenizer(plan.base), load_model(plan.base, plan.adapter)
    require_targets(model, plan.adapter)
    rollouts = PolicyRollouts(
        environment,
        folder,
        group=policy.group,
        seed=plan.seed,
        samples=plan.tracking.samples,
        context=_context(plan, policy, model),
        reply_tokens=policy.reply_tokens,
    )
    trainer = _trainer(plan, rollouts, folder, model, tokenizer, rows, arguments, watch)
    start = time.monotonic()
    watch("training")
    begun = train(trainer, plan, folder)
    save_model(trainer, folder)
    facts = {
        "rows": len(rows),
        "tasks": len({PolicyTask.of(row["prompt"]) for row in rows}),
        "rollouts": total(folder).to_json(),
        "equal_updates": equal_updates(folder),
        "left_out": rollouts.left_out.to_json(),
        "namesakes": list(namesakes),
    }
    return finish(trainer, folder, plan, facts, begun, start)


def _context(plan: Plan, policy: Policy, model: Any) -> int:
    """Return the tokens of the longest sequence; 0 without a limit. Raises SettingsError if it cannot have a reply."""
    context = min((limit for limit in (plan.data.max_length, context_of(model)) if limit), default=0)
    if context and policy.reply_tokens >= context:
        raise SettingsError(
            f"--reply-tokens {policy.reply_tokens} must be less than the {context} tokens of the context (--max-length "
            "or the model's), which also has the prompt",
            option="reply-tokens",
        )
    return context


def _trainer(
    plan: Plan,
    rollouts: PolicyRollouts,
    folder: RunFolder,
    model: Any,
    tokenizer: Any,
    rows: Sequence[dict[str, Any]],
    arguments: dict[str, Any],
    watch: Watch,
) -> Any:
    import trl
    from datasets import Dataset

    # For a rollout without a reward, it would print the whole rollout; they are counted instead.
    logging.getLogger(trl.GRPOTrainer.__module__).setLevel(logging.ERROR)
    return build(
        sharing_prompts(trl.GRPOTrainer),
        trl.GRPOConfig,
        arguments,
        folder,
        model=model,
        train_dataset=Dataset.from_list(list(rows)),
        processing_class=tokenizer,
        reward_funcs=[policy_reward],
        rollout_func=rollouts,
        peft_config=adapter_of(model, plan.base, plan.adapter),
        callbacks=[metrics_writer(folder, watch)],
    )


def _arguments(plan: Plan, policy: Policy, folder: RunFolder) -> dict[str, Any]:
    """Return the arguments of the trainer; one generation gives one update."""
    batches = policy.batches(plan.optimization.batch, int(os.environ.get("WORLD_SIZE", "1")))
    is_reinforce = plan.method is Method.REINFORCE
    common = common_arguments(plan, folder)
    if common["use_cpu"] and plan.adapter.kind == "none":
        # Weights that are trained would be converted for each token of a rollout.
        common["bf16"] = False
    return {
        **common,
        "gradient_accumulation_steps": batches,
        "steps_per_generation": batches,
        "num_generations": policy.group,
        "num_iterations": 1,
        "max_completion_length": policy.completion_tokens,
        "generation_kwargs": {"max_tokens" if policy.vllm else "max_new_tokens": policy.reply_tokens},
        "temperature": policy.temperature,
        "top_p": policy.top_p,
        "beta": plan.optimization.beta or 0.0,
        "scale_rewards": "none" if is_reinforce else "group",
        "loss_type": "dr_grpo" if is_reinforce else "dapo",
        "shuffle_dataset": False,
        "use_vllm": bool(policy.vllm),
        **({"vllm_mode": "server", "vllm_server_base_url": policy.vllm} if policy.vllm else {}),
    }


def _rows(plan: Plan, policy: Policy, environment: PolicyEnvironment, folder: RunFolder) -> list[dict[str, Any]]:
    """Return the rows of all updates, in the order in which they are played."""
    if (kept := folder.data()) is not None:
        return kept[0]
    rng = Random(plan.seed)
    solver, injector = [], []
    for project in environment.solver:
        injector.append(PolicyTask(INJECTOR, project))
        if policy.roles == "both":
            solver.append(PolicyTask(SOLVER, project))
        elif policy.roles == SOLVER:
            opened: Tasks = environment.solver[project].open()
            solver += [PolicyTask(SOLVER, project, bug) for bug in opened.ids]
            opened.close()
    tasks: list[PolicyTask] = []
    # An update has `policy.tasks` different rows, and a round has at least one.
    for _ in range(max(_ROUNDS, policy.tasks)):
        rng.shuffle(solver)
        if policy.roles == "both":
            # A solver repairs what the injector before it has made, so both are in the same project and update.
            tasks += [task for after in solver for task in (PolicyTask(INJECTOR, after.project), after)]
        elif policy.roles == INJECTOR:
            rng.shuffle(injector)
            tasks += injector
        else:
            tasks += solver
    rows = [task.row() for task in tasks]
    if is_main():
        folder.begin(plan.identity(), rows, [])
    return rows
