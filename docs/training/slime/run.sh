#!/bin/bash
# GRPO with slime on eight GPUs: Qwen3-4B-Instruct repairs the bugs of one project. Run it in slime's own image, in its
# folder, with this package installed. The flags are those of slime 0.3.1 (624b824a8); it has not been run on a GPU.
set -euo pipefail

HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
SLIME="${SLIME:-/root/slime}"
MODEL="${MODEL:-/root/Qwen3-4B-Instruct-2507}"
PROMPTS="${PROMPTS:-/data/prompts.jsonl}"
ADAPTER=harness.environments.adapters.slime
source "$SLIME/scripts/models/qwen3-4B-Instruct-2507.sh"

ROLLOUT_ARGS=(
  --custom-generate-function-path "$ADAPTER.generate"
  --custom-rm-path "$ADAPTER.reward_func"
  --dynamic-sampling-filter-path "$ADAPTER.keep_graded"
  --custom-reward-post-process-path "$ADAPTER.group_rewards"
  --custom-config-path "$HERE/settings.yaml"
  --prompt-data "$PROMPTS"
  --input-key prompt
  --label-key label
  --rollout-shuffle
  --num-rollout 300
  --rollout-batch-size 8
  --n-samples-per-prompt 8
  --global-batch-size 64
  # The length of one reply, and of a whole sequence: the context is cut where a prompt leaves no room for a reply.
  --rollout-max-response-len 4096
  --rollout-max-context-len 32768
  --rollout-temperature 1
)
TRAIN_ARGS=(
  --hf-checkpoint "$MODEL"
  --ref-load "${MODEL}_torch_dist"
  --save "${MODEL}_ssr"
  --save-interval 20
  --advantage-estimator grpo
  --eps-clip 0.2
  --eps-clip-high 0.28
  --optimizer adam
  --lr 1e-6
  --lr-decay-style constant
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.98
  --tensor-model-parallel-size 2
  --sequence-parallel
  --context-parallel-size 2
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1
  --use-dynamic-batch-size
  --max-tokens-per-gpu 16384
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --accumulate-allreduce-grads-in-fp32
  --attention-softmax-in-fp32
  --attention-backend flash
)
ENGINE_ARGS=(
  --rollout-num-gpus-per-engine 2
  --sglang-mem-fraction-static 0.7
)

cd "$SLIME"
ray start --head --num-gpus 8 --disable-usage-stats
PYTHONPATH="/root/Megatron-LM" CUDA_DEVICE_MAX_CONNECTIONS=1 python3 train.py \
  --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate \
  "${MODEL_ARGS[@]}" "${ROLLOUT_ARGS[@]}" "${TRAIN_ARGS[@]}" "${ENGINE_ARGS[@]}"
