#!/bin/bash
# GRPO with verl: a model repairs bugs. Run it on the head, again to resume. The options are those of verl 0.9.1; it has
# not been run on GPUs.
set -euo pipefail

HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/cluster.env"
export RAY_ADDRESS=auto

python3 -m verl.trainer.main_ppo \
  algorithm.adv_estimator=grpo \
  data.train_files="$HERE/prompts.jsonl" \
  data.val_files="$HERE/prompts.jsonl" \
  data.train_batch_size="$TASKS" \
  data.max_prompt_length=4096 \
  data.max_response_length="$((CONTEXT - 4096))" \
  actor_rollout_ref.model.path="$MODEL" \
  actor_rollout_ref.actor.optim.lr=1e-6 \
  actor_rollout_ref.actor.ppo_mini_batch_size="$TASKS" \
  actor_rollout_ref.actor.use_dynamic_bsz=True \
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu="$CONTEXT" \
  actor_rollout_ref.actor.ulysses_sequence_parallel_size="$CONTEXT_PARALLEL" \
  actor_rollout_ref.rollout.name=vllm \
  actor_rollout_ref.rollout.n="$GROUP" \
  actor_rollout_ref.rollout.tensor_model_parallel_size="$TENSOR_PARALLEL" \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \
  actor_rollout_ref.rollout.calculate_log_probs=True \
  actor_rollout_ref.rollout.agent.num_workers="$AGENT_WORKERS" \
  actor_rollout_ref.rollout.agent.default_agent_loop=ssr_agent \
  actor_rollout_ref.rollout.agent.agent_loop_config_path="$HERE/agent.yaml" \
  trainer.n_gpus_per_node="$GPUS_PER_NODE" \
  trainer.nnodes="$NODES" \
  trainer.save_freq=20 \
  trainer.default_local_dir="$CHECKPOINTS" \
  trainer.resume_mode=auto \
  trainer.test_freq=-1 \
  trainer.val_before_train=False \
  trainer.total_epochs="$UPDATES" \
  trainer.total_training_steps="$UPDATES" \
  trainer.logger='["console"]'
