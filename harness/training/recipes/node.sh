#!/bin/bash
# Join this node to the Ray cluster of the run, as the README beside this file describes.
set -euo pipefail

HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
# Ray's workers get the variables of `ray start`, so that all nodes have the same.
source "$HERE/cluster.env"
ROLE="${1:-}" HEAD="${2:-}"

case "$ROLE" in
  head) ray start --head --port 6379 --num-gpus "$GPUS_PER_NODE" --disable-usage-stats ;;
  worker) ray start --address "${HEAD:?the address of the head}:6379" --num-gpus "$GPUS_PER_NODE" --disable-usage-stats ;;
  # Without CPUs, Ray places nothing of the trainer here.
  sandboxes)
    ray start --address "${HEAD:?the address of the head}:6379" --num-cpus 0 --num-gpus 0 --disable-usage-stats \
      --resources "{\"ssr_slots\": $(ssr doctor --slots)}"
    ;;
  *)
    echo "usage: node.sh head | worker HEAD | sandboxes HEAD" >&2
    exit 2
    ;;
esac
