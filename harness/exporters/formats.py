"""The formats, by the names that `--format` takes."""

from __future__ import annotations

from collections.abc import Mapping

from harness.exporters.atif import ATIF
from harness.exporters.containers import SLIME_PROMPTS
from harness.exporters.harbor import HARBOR
from harness.exporters.preferences import DPO, KTO
from harness.exporters.protocol import Format
from harness.exporters.rl import GRPO, ROLLOUTS, SKYRL_PROMPTS, SLIME_SAMPLES, VERL_PROMPTS
from harness.exporters.sft import BC, SFT, SFT_TOKENS
from harness.exporters.tasks import ARTIFACTS, SWE_BENCH, SWE_RL, SWE_SMITH
from pytest_ssr.extensions import Extensions

_ALL = (
    *(ROLLOUTS, ATIF, SFT, SFT_TOKENS, BC, DPO, KTO, GRPO, SLIME_PROMPTS, SLIME_SAMPLES, VERL_PROMPTS, SKYRL_PROMPTS),
    *(SWE_RL, SWE_BENCH, SWE_SMITH, ARTIFACTS, HARBOR),
)
FORMATS: Mapping[str, Format] = {f.name: f for f in _ALL}


def formats_of(extensions: Extensions) -> Mapping[str, Format]:
    """Return our formats and those of plugins, which cannot replace ours."""
    return {**{form.name: form for form in extensions.exporters()}, **FORMATS}
