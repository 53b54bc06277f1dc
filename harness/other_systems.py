"""Say where commands, routes and variables of SSR Studio, SWE-Little and OpenClaw-RL's swe-rl are found here.

The one table for users who type what they know from there. docs/coming-from.md has each row with its explanation, and a
test compares both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

PREFIX = "/api/v1"
COMMANDS: Mapping[str, str] = {
    "metrics": "stats",
    "init-db": "serve",
    "demo.py": "inject",
    "src/trainer.py": "train grpo",
    "src/evaluate.py": "run",
    "server/swe_exec_server.py": "sandbox-server",
    "server/swe_env_pool_server.py": "play",
    "data/pull_swe_images.sh": "assets",
    "data/preprocess_swe_dataset.py": "run",
    "eval/eval_swe.py": "run",
    "eval/run_eval_swe.sh": "run",
}
"""Their commands and scripts, with the command of `ssr` that does the same."""
ROUTES: Mapping[str, str] = {
    f"{PREFIX}/config": "/openapi.json",
    f"{PREFIX}/environments": f"{PREFIX}/projects",
    f"{PREFIX}/environments/ID": f"{PREFIX}/projects/ID",
    f"{PREFIX}/episodes/ID/cancel": f"{PREFIX}/jobs/ID/cancel",
    f"{PREFIX}/episodes/ID/artifact": f"{PREFIX}/artifacts/ID",
    f"{PREFIX}/episodes/ID/artifact/download": f"{PREFIX}/artifacts/ID/files.tar",
    f"{PREFIX}/episodes/ID/validation": f"{PREFIX}/artifacts/ID/verdict",
    f"{PREFIX}/episodes/ID/attempts": f"{PREFIX}/attempts?artifact_id=ID",
    f"{PREFIX}/metrics": "/metrics",
}
"""Routes of SSR Studio, with those of the service. The id of a thing here is not always the one in their route."""
SERVER_ROUTES: Mapping[str, str] = {
    "/healthz": "/health",
    "/status": "/health",
    "/container/create": "/v1/open",
    "/container/exec": "/v1/sandboxes/ID/exec",
    "/container/diff": "/v1/sandboxes/ID/diff",
    "/container/evaluate": "ssr grade",
    "/container/destroy": "/v1/sandboxes/ID/close",
    "/allocate": "ssr play",
    "/heartbeat": "ssr play",
    "/exec": "ssr play",
    "/diff": "ssr play",
    "/evaluate": "ssr play",
    "/close": "ssr play",
}
"""Routes of swe-rl's servers, with those of the sandbox server, or the command that makes them unnecessary."""
VARIABLES: Mapping[str, str] = {
    "SSR_OPENAI_API_KEY": "OPENAI_API_KEY",
    "SSR_ANTHROPIC_API_KEY": "ANTHROPIC_API_KEY",
    "SSR_DATABASE_URL": "SSR_DATABASE",
    "SSR_SANDBOX_TIMEOUT_SECONDS": "--rollout-limit",
    "SSR_SANDBOX_BASH_TIMEOUT": "--command-limit",
    "SSR_INJECTION_STRATEGY": "SSR_STRATEGY",
    "SSR_SOLVER_ATTEMPTS_PER_BUG": "SSR_ATTEMPTS",
    "SSR_REWARD_ALPHA": "SSR_ALPHA",
    "SSR_SOLVER_MAX_TOOL_STEPS": "--steps",
    "SSR_SOLVER_MAX_TOKENS": "--max-tokens",
    "SSR_SOLVER_TEMPERATURE": "--temperature",
    "SSR_SOLVER_TOP_P": "--top-p",
    "SSR_MAX_TEST_RUNTIME_SEC": "--script-limit",
    "SSR_TRAINING_LORA_R": "--lora-rank",
    "SSR_TRAINING_LORA_ALPHA": "--lora-alpha",
    "SSR_TRAINING_LEARNING_RATE": "--learning-rate",
    "SSR_TRAINING_BATCH_SIZE": "--batch",
    "SSR_TRAINING_KL_COEF": "--beta",
}
"""Variables of SSR Studio, with the variable or the option here."""


def command_here(word: str) -> str:
    """Return the command of `ssr` for a command or a script of another system; empty for an unknown one."""
    return next((here for there, here in COMMANDS.items() if _stem(there) == _stem(word)), "")


def route_here(path: str, routes: Mapping[str, str] = ROUTES) -> str:
    """Return what does the work of a route of another system; empty for an unknown one."""
    parts = path.rstrip("/").split("/")
    return next((here for there, here in routes.items() if _matches(there.split("/"), parts)), "")


def _stem(word: str) -> str:
    return PurePosixPath(word).stem.replace("_", "-")


def _matches(pattern: list[str], parts: list[str]) -> bool:
    return len(pattern) == len(parts) and all(
        part == wanted or (wanted == "ID" and part) for wanted, part in zip(pattern, parts, strict=True)
    )
