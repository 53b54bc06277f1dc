#!/bin/bash
# GRPO with verl on eight GPUs: Qwen3-4B-Instruct repairs the bugs of one project. The options are those of verl 0.9.1; it
# has not been run on a GPU.
set -euo pipefail

HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
MODEL="${MODEL:-Qwen/Qwen3-4B-Instruct-2507}"
ROWS="${ROWS:-/data/rows.jsonl}"

python3 -m verl.trainer.main_ppo \
  algorithm.adv_estimator=grpo \
  data.train_files="$ROWS" \
  data.val_files="$ROWS" \
  data.train_batch_size=8 \
  data.max_prompt_length=4096 \
  data.max_response_length=28672 \
  actor_rollout_ref.model.path="$MODEL" \
  actor_rollout_ref.actor.optim.lr=1e-6 \
  actor_rollout_ref.actor.ppo_mini_batch_size=8 \
  actor_rollout_ref.actor.use_dynamic_bsz=True \
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=32768 \
  actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 \
  actor_rollout_ref.rollout.name=vllm \
  actor_rollout_ref.rollout.n=8 \
  actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \
  actor_rollout_ref.rollout.calculate_log_probs=True \
  actor_rollout_ref.rollout.agent.num_workers=4 \
  actor_rollout_ref.rollout.agent.default_agent_loop=ssr_agent \
  actor_rollout_ref.rollout.agent.agent_loop_config_path="$HERE/agent.yaml" \
  trainer.n_gpus_per_node=8 \
  trainer.nnodes=1 \
  trainer.save_freq=20 \
  trainer.test_freq=-1 \
  trainer.val_before_train=False \
  trainer.total_epochs=30 \
  trainer.logger='["console"]'
