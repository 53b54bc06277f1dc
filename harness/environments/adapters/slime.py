"""The environments for slime: episodes in place of its own `generate`, with the tests' reward.

Pass `harness.environments.adapters.slime.generate` to `--custom-generate-function-path`, and also `reward_func` to
`--custom-rm-path`, `keep_graded` to `--dynamic-sampling-filter-path` and `group_rewards` to
`--custom-reward-post-process-path`. The file of `--custom-config-path` has the fields of `SlimeSettings`, each with the
prefix `ssr_`. The label of a row names its task (`prompt_rows`), so that all rollouts of a group attempt the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

import httpx
from slime.rollout.filter_hub.base_types import DynamicFilterOutput
from slime.rollout.sglang_rollout import GenerateState
from slime.utils.http_utils import post
from slime.utils.types import Sample

from harness.environments.adapters.pool import Pool, PoolSettings, pool_of
from harness.environments.adapters.transcript import ChatTokens, Transcript
from harness.environments.episode import Turn
from harness.environments.episodes import Episodes
from harness.environments.task import TaskSource
from pytest_ssr.errors import ContextError, ModelError, SettingsError

_PREFIX = "ssr_"
_BASELINES = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
"""The estimators whose rewards slime compares within a group."""
_DEVIATIONS = ("grpo", "gspo", "cispo")
"""Those that also divide by the standard deviation."""


@dataclass(frozen=True, slots=True)
class SlimeSettings(PoolSettings):
    """The settings in the file of `--custom-config-path`."""

    single_steps: bool = False
    """Make a sample of each reply instead of each sequence of tokens."""

    @classmethod
    def of(cls, args: Any) -> SlimeSettings:
        """Return the settings in slime's arguments; raises SettingsError for an unknown or invalid one."""
        given = {name.removeprefix(_PREFIX): value for name, value in vars(args).items() if name.startswith(_PREFIX)}
        return cls.read(given, _PREFIX)


def prompt_rows(tasks: TaskSource) -> list[dict[str, str]]:
    """Return a row of `--prompt-data` for each task; the episode describes it, so the prompt is only its id."""
    opened = tasks.open()
    try:
        return [{"prompt": task_id, "label": task_id} for task_id in opened.ids]
    finally:
        opened.close()


class _AbortedError(Exception):
    """slime does not want the rollout any more, because its batch is full."""


class _Rollout:
    """One rollout, and the samples that it has so far."""

    def __init__(self, args: Any, base: Sample, sampling: dict[str, Any], pool: Pool, context: int | None) -> None:
        """context: tokens of a whole sequence; None for no limit."""
        self._args, self._base, self._sampling, self._pool = args, base, sampling, pool
        self._single_steps = SlimeSettings.of(args).single_steps
        self._state = GenerateState(args)
        self._budget = _prompt_budget(context, sampling["max_new_tokens"])
        self._samples: list[Sample] = []
        self._turns: list[Turn] = []

    async def play(self, episodes: Episodes) -> list[Sample]:
        """Play an episode and return its samples; raises SandboxError or ModelError if it has no grade."""
        try:
            await self._play(episodes)
        except _AbortedError:
            return [_aborted(self._base)]
        return self._graded()

    async def _play(self, episodes: Episodes) -> None:
        self._require_wanted()
        episode = await self._pool.run(episodes.begin, task=str(self._base.label))
        try:
            transcript = Transcript(
                ChatTokens(self._state.tokenizer, self._args.apply_chat_template_kwargs or {}),
                episode.system,
                episode.prompt,
                budget=self._budget,
                single_steps=self._single_steps,
            )
            while episode.outcome is None:
                self._turns.append(await self._turn(episodes, transcript))
        finally:
            await self._pool.run(episode.close)

    def _require_wanted(self) -> None:
        if self._state.aborted:
            raise _AbortedError

    async def _turn(self, episodes: Episodes, transcript: Transcript) -> Turn:
        try:
            addition = transcript.next_prompt()
        except ContextError as error:
            if not self._samples:
                raise SettingsError(f"{error}; raise --rollout-max-context-len") from None
            return await self._pool.run(episodes.stop, "the context is full")
        if addition.begins:
            self._samples.append(self._new_sample(addition.ids))
        else:
            self._samples[-1].append_response_tokens(self._args, tokens=addition.ids, trainable=False)
        # The engine would still answer after it was told to abort all requests.
        self._require_wanted()
        ids = await self._reply(self._samples[-1])
        turn = await self._pool.run(episodes.write, transcript.add_reply(ids))
        if turn.outcome is None:
            transcript.add_observation(turn.output)
        return turn

    def _new_sample(self, prompt_ids: list[int]) -> Sample:
        """Return a sample that has only its prompt."""
        return replace(
            self._base,
            rollout_id=_rollout_id(self._base),
            tokens=prompt_ids,
            status=Sample.Status.PENDING,
            metadata=dict(self._base.metadata or {}),
            # What slime appends to is not shared with the other samples.
            weight_versions=[],
            spec_info=Sample.SpecInfo(),
            prefix_cache_info=Sample.PrefixCacheInfo(),
        )

    async def _reply(self, sample: Sample) -> list[int]:
        """Append the engine's reply to a sample, and return its tokens; raises ModelError if there is none."""
        args = self._args
        url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
        payload = {"input_ids": sample.tokens, "sampling_params": self._sampling, "return_logprob": True}
        headers = None
        if sample.session_id and getattr(args, "router_policy", None) == "consistent_hashing":
            headers = {"X-SMG-Routing-Key": sample.session_id}
        try:
            output = await post(url, payload, headers=headers)
            meta = output["meta_info"]
            if meta["finish_reason"]["type"] == "abort":
                raise _AbortedError
            sampled = [(int(entry[1]), float(entry[0])) for entry in meta["output_token_logprobs"]]
            text = str(output["text"])
        except (httpx.HTTPError, KeyError, IndexError, TypeError, ValueError) as error:
            raise ModelError(f"the engine at {url} gave no reply: {type(error).__name__}: {error}") from None
        ids = [token for token, _ in sampled]
        if not ids:
            raise ModelError(f"the engine at {url} returned no tokens with their log probabilities")
        sample.append_response_tokens(
            args, tokens=ids, log_probs=[value for _, value in sampled], trainable=True, meta_info=meta, text=text
        )
        return ids

    def _graded(self) -> list[Sample]:
        """Return the samples with the episode's reward; raises SandboxError if it has none."""
        last = self._turns[-1]
        reward = sum(turn.known_reward() for turn in self._turns)
        for sample in self._samples:
            sample.reward = reward
            sample.status = Sample.Status.TRUNCATED if last.truncated else Sample.Status.COMPLETED
            sample.metadata["ssr_code"] = last.outcome.code if last.outcome is not None else ""
        return self._samples


def _prompt_budget(context: int | None, reply: int) -> int:
    """Return the tokens of a prompt that leave room for a reply; 0 for no limit."""
    if not context:
        return 0
    if context <= reply:
        raise SettingsError("--rollout-max-context-len must exceed --rollout-max-response-len, the length of a reply")
    return context - reply


async def generate(
    args: Any, sample: Sample, sampling_params: dict[str, Any], evaluation: bool = False
) -> list[Sample] | Sample:
    """Return the samples of one episode, which share its reward and `rollout_id`; in an evaluation, only the last one.

    If the sandbox or the engine failed, or slime does not want the rollout any more, the one sample is aborted and has
    no reward. An evaluation, which has to have a reward for each sample, plays the episode again. Raises SandboxError
    after too many failures in a row.
    """
    if args.partial_rollout:
        raise SettingsError("--partial-rollout cannot continue an episode, because its sandbox is gone; omit it")
    pool = pool_of(SlimeSettings.of(args))
    context = args.eval_max_context_len if evaluation else args.rollout_max_context_len
    while True:
        rollout = _Rollout(args, sample, dict(sampling_params), pool, context)
        samples = await pool.play(str(sample.label), rollout.play)
        if samples is not None:
            return samples[-1] if evaluation else samples
        if not evaluation:
            return [_aborted(sample)]


def _aborted(sample: Sample) -> Sample:
    """Return a sample without tokens, which slime can generate again."""
    return replace(sample, rollout_id=_rollout_id(sample), status=Sample.Status.ABORTED)


def _rollout_id(sample: Sample) -> int | None:
    return sample.rollout_id if sample.rollout_id is not None else sample.index


async def reward_func(args: Any, sample: Any, **kwargs: Any) -> Any:
    """Return the reward that `generate` has set in a sample, or in each of a list; None if it has no grade."""
    if isinstance(sample, list):
        return [await reward_func(args, one, **kwargs) for one in sample]
    return sample.reward


def keep_graded(args: Any, samples: Sequence[Any], **kwargs: Any) -> DynamicFilterOutput:
    """Drop a group in which a rollout has no reward; slime then generates another one."""
    keep = all(sample.reward is not None for sample in _flat(samples))
    return DynamicFilterOutput(keep=keep, reason=None if keep else "no_grade")


def group_rewards(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Return the rewards, and the same compared within each group, in which every rollout counts once.

    slime itself counts every sample, and all groups of a batch as one if rollouts have several samples. Raises
    SettingsError for a sample without a reward.
    """
    flat = _flat(samples)
    if any(sample.reward is None for sample in flat):
        raise SettingsError("a sample has no reward; pass keep_graded to --dynamic-sampling-filter-path")
    raw = [sample.get_reward_value(args) for sample in flat]
    if args.advantage_estimator not in _BASELINES or not args.rewards_normalization:
        return raw, raw
    groups: dict[int | None, dict[int | None, float]] = {}
    for sample, reward in zip(flat, raw, strict=True):
        groups.setdefault(sample.group_index, {})[_rollout_id(sample)] = reward
    divides = args.advantage_estimator in _DEVIATIONS and args.grpo_std_normalization
    compared = []
    for sample, reward in zip(flat, raw, strict=True):
        rewards = list(groups[sample.group_index].values())
        deviation = stdev(rewards) + 1e-6 if divides and len(rewards) > 1 else 1.0
        compared.append((reward - fmean(rewards)) / deviation)
    return raw, compared


def _flat(samples: Sequence[Any]) -> list[Sample]:
    return [one for sample in samples for one in (_flat(sample) if isinstance(sample, list) else [sample])]
