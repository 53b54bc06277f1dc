#!/bin/bash
# Convert the model's weights for Megatron: once, on one node, before the first start.
set -euo pipefail

HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/cluster.env"
source "$SLIME/scripts/models/$SHAPE.sh"

[[ -d "$MODEL_FOLDER" ]] || hf download "$MODEL" --local-dir "$MODEL_FOLDER"
cd "$SLIME"
torchrun --nproc-per-node "$GPUS_PER_NODE" tools/convert_hf_to_torch_dist.py \
  "${MODEL_ARGS[@]}" --hf-checkpoint "$MODEL_FOLDER" --save "$CONVERTED"
