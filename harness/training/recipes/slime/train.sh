#!/bin/bash
# GRPO with slime: a model repairs bugs. Run it on the head, again to resume. The flags are those of slime 0.3.1
# (624b824a8); it has not been run on GPUs.
set -euo pipefail

HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/cluster.env"
export RAY_ADDRESS=auto
ADAPTER=harness.environments.adapters.slime
source "$SLIME/scripts/models/$SHAPE.sh"

ROLLOUT_ARGS=(
  --custom-generate-function-path "$ADAPTER.generate"
  --custom-rm-path "$ADAPTER.reward_func"
  --dynamic-sampling-filter-path "$ADAPTER.keep_graded"
  --custom-reward-post-process-path "$ADAPTER.group_rewards"
  --custom-config-path "$HERE/settings.yaml"
  --prompt-data "$HERE/prompts.jsonl"
  --input-key prompt
  --label-key label
  --rollout-shuffle
  --num-rollout "$UPDATES"
  --rollout-batch-size "$TASKS"
  --n-samples-per-prompt "$GROUP"
  --global-batch-size "$((TASKS * GROUP))"
  # The length of one reply, and of a whole sequence: the context is cut where a prompt leaves no room for a reply.
  --rollout-max-response-len 4096
  --rollout-max-context-len "$CONTEXT"
  --rollout-temperature 1
)
TRAIN_ARGS=(
  --hf-checkpoint "$MODEL_FOLDER"
  --ref-load "$CONVERTED"
  # Without a checkpoint there, the weights of --ref-load are loaded.
  --load "$CHECKPOINTS"
  --save "$CHECKPOINTS"
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
  --tensor-model-parallel-size "$TENSOR_PARALLEL"
  --sequence-parallel
  --context-parallel-size "$CONTEXT_PARALLEL"
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1
  --use-dynamic-batch-size
  --max-tokens-per-gpu "$((CONTEXT / CONTEXT_PARALLEL))"
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --accumulate-allreduce-grads-in-fp32
  --attention-softmax-in-fp32
  --attention-backend flash
)
ENGINE_ARGS=(
  --rollout-num-gpus-per-engine "$TENSOR_PARALLEL"
  --sglang-mem-fraction-static 0.7
)

cd "$SLIME"
python3 train.py \
  --actor-num-nodes "$NODES" --actor-num-gpus-per-node "$GPUS_PER_NODE" --num-gpus-per-node "$GPUS_PER_NODE" --colocate \
  "${MODEL_ARGS[@]}" "${ROLLOUT_ARGS[@]}" "${TRAIN_ARGS[@]}" "${ENGINE_ARGS[@]}"
