"""The environments for TRL's `GRPOTrainer`: as `environment_factory` and as `rollout_func`.

With `environment_factory=functools.partial(TrlEnvironment, StoreTasks(PROJECT))`, TRL's own loop calls the tools of a
model that is trained for tool calls, and `task_rows` makes the dataset. With
`rollout_func=TrlRollouts(StoreTasks(PROJECT))` and `rollout_rows`, any chat model writes its calls as fenced blocks.
Each row names its task, so that all rollouts of a group attempt the same one.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harness.environments.adapters.transcript import ChatTokens
from harness.environments.episode import Turn
from harness.environments.episodes import EnvironmentSettings, Episodes
from harness.environments.remote_episodes import open_episodes, together
from harness.environments.task import Outcome, TaskSource
from harness.records.messages import SYSTEM, USER
from harness.records.trajectory import ExitReason
from pytest_ssr.errors import SettingsError

_T = TypeVar("_T")
_FULL = {ExitReason.TOKEN_LIMIT: "the completion is full", ExitReason.CONTEXT: "the context has no room for a reply"}


def task_rows(tasks: TaskSource) -> list[dict[str, Any]]:
    """Return a row for each task; `reset` adds the task's description to its empty prompt."""
    opened = tasks.open()
    try:
        return [{"prompt": [{"role": USER, "content": ""}], "task": task_id} for task_id in opened.ids]
    finally:
        opened.close()


class TrlEnvironment:
    """Episodes whose tools are the public methods, as TRL requires."""

    def __init__(self, tasks: TaskSource, settings: EnvironmentSettings = EnvironmentSettings()) -> None:
        if settings.tools or settings.bundles:
            raise SettingsError("TRL sees only bash, editor and submit; omit tools and bundles, or use TrlRollouts")
        self._episodes = open_episodes(tasks, settings)
        self._closing = weakref.finalize(self, self._episodes.close)
        self._turns: list[Turn] = []

    def reset(self, task: str = "", **row: Any) -> str:
        """Begin an episode with the task of a row, and return its description."""
        if not task:
            raise SettingsError("the dataset has no column `task`; make it with task_rows")
        self._turns = []
        episode = self._episodes.begin(task=task)
        return f"{episode.system}\n\n{episode.prompt}"

    def bash(self, command: str) -> str:
        """Run a command in the project's folder.

        Args:
            command: The command.

        Returns:
            The output and the exit status.
        """
        return self._call("bash", command=command)

    def editor(
        self,
        command: str,
        path: str,
        file_text: str | None = None,
        old_str: str | None = None,
        new_str: str | None = None,
        insert_line: int | None = None,
        view_range: list[int] | None = None,
    ) -> str:
        """Look at a text file or change it.

        Args:
            command: One of view, create, str_replace, insert and undo_edit.
            path: Absolute, or relative to the project's folder.
            file_text: The content of a created file.
            old_str: The string to replace; it must occur exactly once.
            new_str: The string that replaces it, or that is inserted.
            insert_line: The line after which a string is inserted; 0 is before the first line.
            view_range: The first and the last line to view.

        Returns:
            The lines, or what has changed.
        """
        optional = {
            "file_text": file_text,
            "old_str": old_str,
            "new_str": new_str,
            "insert_line": insert_line,
            "view_range": view_range,
        }
        given = {name: value for name, value in optional.items() if value is not None}
        return self._call("editor", command=command, path=path, **given)

    def submit(self) -> str:
        """Submit the work, which ends it.

        Returns:
            What is missing, or a confirmation.
        """
        return self._call("submit")

    def get_reward(self) -> float | None:
        """Return the sum of the episode's rewards; None, which TRL leaves out, if the sandbox failed.

        An episode that the policy has not ended is stopped, and its changes are graded.
        """
        if self._episodes.current.outcome is None:
            self._turns.append(self._episodes.stop("the policy wrote its last reply"))
        return _total(self._turns)

    def _call(self, tool: str, **arguments: Any) -> str:
        if self._episodes.current.outcome is not None:
            return "the work has ended; nothing more can be done"
        turn = self._episodes.call(tool, arguments)
        self._turns.append(turn)
        return turn.output


class TrlRollouts:
    """Generates whole rollouts with the trainer's model: a `rollout_func`."""

    def __init__(self, tasks: TaskSource, settings: EnvironmentSettings = EnvironmentSettings()) -> None:
        self._tasks, self._settings = tasks, settings
        self._pool: list[Episodes] = []
        self._closing = weakref.finalize(self, _close, self._pool)

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any] | None]:
        """Return token ids, log probabilities, masks and rewards of one rollout for each prompt.

        The last message of a prompt is the id of its task, as in `rollout_rows`. Pass `given_reward` to the trainer as
        its reward function. Each rollout has a sandbox; they take their turns together.
        """
        while len(self._pool) < len(prompts):
            self._pool.append(open_episodes(self._tasks, self._settings))
        tasks = [str(prompt[-1]["content"]) for prompt in prompts]
        begun = list(zip(self._pool, tasks, strict=False))
        together(lambda pair: pair[0].begin(task=pair[1]), begun)
        rollouts = [Rollout.of(episodes, trainer) for episodes, _ in begun]
        generate(rollouts, trainer)
        return {**token_columns(rollouts), "reward": [r.reward for r in rollouts]}


def _close(pool: list[Episodes]) -> None:
    for episodes in pool:
        episodes.close()


@dataclass(slots=True)
class Rollout:
    """The tokens of one rollout; those of observations have the mask 0."""

    episodes: Episodes
    prompt_ids: list[int]
    context: int = 0
    """Tokens of the longest sequence, its prompt included; 0: the completion alone has a limit."""
    reply_tokens: int = 0
    """Tokens of a reply, for which there is always room in the context."""
    full: ExitReason | None = None
    """The limit of tokens that has ended it; None if none has."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    cut_replies: int = 0
    """The number of replies that a limit of tokens has cut."""
    _end: list[int] = field(default_factory=list)
    """The tokens that the last reply lacks at its end."""

    @classmethod
    def of(cls, episodes: Episodes, trainer: Any, *, context: int = 0, reply_tokens: int = 0) -> Rollout:
        """Return the rollout of an episode that has begun."""
        episode = episodes.current
        system = [{"role": SYSTEM, "content": episode.system}] if episode.system else []
        messages = [*system, {"role": USER, "content": episode.prompt}]
        return cls(episodes, _chat(trainer).encode(messages, ask=True), context, reply_tokens)

    @property
    def reward(self) -> float | None:
        """The sum of the rewards; None, which TRL leaves out, if the sandbox failed."""
        return _total(self.turns)

    @property
    def outcome(self) -> Outcome | None:
        """The result of the episode; None until the end."""
        return self.episodes.current.outcome

    def add(self, ids: list[int], logprobs: list[float], *, mask: int) -> None:
        """Append tokens. logprobs: empty if the trainer's generation returns none."""
        self.ids += ids
        self.logprobs += logprobs
        self.mask += [mask] * len(ids)

    def add_reply(self, ids: list[int], logprobs: list[float] | None, trainer: Any) -> str:
        """Append the tokens of a reply as far as there is room; return its text."""
        room = trainer.args.max_completion_length - len(self.ids)
        kept = ids[:room]
        has_ended = bool(kept) and kept[-1] in trainer.eos_token_ids
        if len(ids) >= min(room, self.reply_tokens or room) and not has_ended:
            self.cut_replies += 1
        self._end = _chat(trainer).end_of(kept)
        self.add(kept, logprobs[:room] if logprobs is not None else [], mask=1)
        return str(trainer.processing_class.decode(kept, skip_special_tokens=True))

    def add_turn(self, turn: Turn, trainer: Any, *, with_logprobs: bool) -> bool:
        """Append as many tokens of an observation as fit; return whether the rollout is full.

        They begin with the end of the reply if it was cut before it.
        """
        self.turns.append(turn)
        if turn.outcome is not None:
            return False
        tokens = self._end + _chat(trainer).between(turn.output)
        room, limit = trainer.args.max_completion_length - len(self.ids), ExitReason.TOKEN_LIMIT
        if self.context and room:
            in_context = self.context - self.reply_tokens - len(self.prompt_ids) - len(self.ids)
            if in_context < room:
                room, limit = max(0, in_context), ExitReason.CONTEXT
        # A rollout that ends with a cut reply stays as it was sampled.
        observed = tokens[:room] if room > len(self._end) else []
        self.add(observed, [0.0] * len(observed) if with_logprobs else [], mask=0)
        if len(observed) < len(tokens) or len(self.ids) == trainer.args.max_completion_length:
            self.full = limit
        return self.full is not None


def generate(rollouts: Sequence[Rollout], trainer: Any) -> None:
    """Alternate between the model and the environments until all episodes have ended or have no room for a reply.

    The processes of a training generate together: a vLLM server gets the prompts of all of them in one request, the
    same number of each, and sharded weights are gathered. So a process with fewer active episodes adds prompts whose
    replies it discards, until none of them has an active episode.
    """
    while True:
        active = [rollout for rollout in rollouts if rollout.outcome is None]
        count = max(of_all_processes(len(active), trainer))
        if not count:
            return
        prompts = [rollout.prompt_ids + rollout.ids for rollout in active]
        prompts += [[trainer.processing_class.eos_token_id]] * (count - len(active))
        # The trainer has no public method that generates.
        replies, logprobs = trainer._generate_single_turn(prompts, None, {}, 1)
        # Tokenizers cannot be used by several threads; sandboxes can.
        texts = [
            rollout.add_reply(list(replies[index]), list(logprobs[index]) if logprobs is not None else None, trainer)
            for index, rollout in enumerate(active)
        ]
        turns = together(lambda pair: pair[0].episodes.write(pair[1]), list(zip(active, texts, strict=True)))
        full = [
            rollout
            for rollout, turn in zip(active, turns, strict=True)
            if rollout.add_turn(turn, trainer, with_logprobs=logprobs is not None)
        ]
        together(_stop, full)


def _stop(rollout: Rollout) -> None:
    """End the episode of a rollout that is full."""
    assert rollout.full is not None
    rollout.turns.append(rollout.episodes.stop(_FULL[rollout.full], rollout.full))


def of_all_processes(item: _T, trainer: Any) -> list[_T]:
    """Return the items of all processes of a training, which have to call this together."""
    if trainer.accelerator.num_processes == 1:
        return [item]
    from accelerate.utils import gather_object

    return list(gather_object([item]))


def token_columns(rollouts: Sequence[Rollout]) -> dict[str, list[Any] | None]:
    """Return the columns of a `rollout_func` besides the reward."""
    has_logprobs = all(len(r.logprobs) == len(r.ids) for r in rollouts)
    return {
        "prompt_ids": [r.prompt_ids for r in rollouts],
        "completion_ids": [r.ids for r in rollouts],
        "logprobs": [r.logprobs for r in rollouts] if has_logprobs else None,
        "env_mask": [r.mask for r in rollouts],
    }


def rollout_rows(tasks: TaskSource) -> list[dict[str, Any]]:
    """Return a row for each task, for `TrlRollouts`."""
    return [{"prompt": [{"role": USER, "content": row["task"]}]} for row in task_rows(tasks)]


def given_reward(reward: Sequence[float | None], **row: Any) -> list[float | None]:
    """Return the rewards that `TrlRollouts` has returned: a reward function for the trainer."""
    return list(reward)


def _total(turns: Sequence[Turn]) -> float | None:
    """Return the sum of the rewards; None, which TRL leaves out, if the sandbox failed."""
    rewards = [turn.reward for turn in turns if turn.reward is not None]
    return sum(rewards) if len(rewards) == len(turns) else None


def _chat(trainer: Any) -> ChatTokens:
    options = {**trainer.chat_template_kwargs, "chat_template": trainer.chat_template}
    return ChatTokens(trainer.processing_class, options)
