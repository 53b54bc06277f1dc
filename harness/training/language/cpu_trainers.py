"""Make TRL's trainers faster on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.local_models.torch_model import cache_name


def score_labelled_positions() -> None:
    """Make TRL's fused heads project to the vocabulary only the positions that have a label; the loss is the same.

    TRL does so on GPUs. Elsewhere it projects each position, so that an accelerator need not compile for other shapes;
    on a CPU, which compiles nothing, this takes much of the time of a small model whose rows are mostly prompts.
    """
    from trl.trainer import utils

    utils._use_triton = lambda device: True  # The switch has no public name.


def sharing_prompts(trainer: type[Any]) -> type[Any]:
    """Return a subclass of TRL's GRPOTrainer that reads a prompt once for all of its replies, in one process on a CPU.

    The rollouts of a group begin with one prompt, and TRL would read it for each of them. Replies are of the same
    distribution, but drawn with other random numbers.
    """

    class Trainer(trainer):  # type: ignore[misc]
        def _generate_single_turn(self, prompt_ids: Sequence[Sequence[int]], *args: Any, **options: Any) -> Any:
            places: dict[tuple[int, ...], list[int]] = {}
            for place, ids in enumerate(prompt_ids):
                places.setdefault(tuple(ids), []).append(place)
            is_alone = self.accelerator.device.type == "cpu" and self.accelerator.num_processes == 1
            # Those of later turns differ, and TRL writes their replies together.
            are_groups = all(len(same) >= self.num_generations for same in places.values())
            if self.use_vllm or not is_alone or not are_groups or not _repeats(_causal(self.model).config):
                return super()._generate_single_turn(prompt_ids, *args, **options)
            replies: list[list[int]] = [[] for _ in prompt_ids]
            for prompt, same in places.items():
                for place, reply in zip(same, self._replies(list(prompt), len(same)), strict=True):
                    replies[place] = reply
            return replies, None

        def _replies(self, prompt: Sequence[int], count: int) -> list[list[int]]:
            import torch
            from transformers import DynamicCache
            from trl.models import unwrap_model_for_generation

            generating = unwrap_model_for_generation(
                self.model_wrapped, self.accelerator, generation_kwargs=self.generation_kwargs
            )
            with generating as model, torch.no_grad():
                causal = _causal(model)
                cache = DynamicCache(config=causal.config)
                named = {cache_name(causal): cache}
                if len(prompt) > 1:
                    causal(input_ids=torch.tensor([prompt[:-1]]), use_cache=True, logits_to_keep=1, **named)
                    cache.batch_repeat_interleave(count)
                ids = torch.tensor([prompt] * count)
                mask = torch.ones_like(ids)
                whole = model.generate(
                    input_ids=ids, attention_mask=mask, generation_config=self.generation_config, **named
                )
            return [self._until_end(reply) for reply in whole[:, len(prompt) :].tolist()]

        def _until_end(self, reply: list[int]) -> list[int]:
            """Return a reply without the padding after its end."""
            end = next((place for place, token in enumerate(reply) if token in self.eos_token_ids), len(reply))
            return reply[: end + 1]

    Trainer.__name__ = trainer.__name__
    return Trainer


def _causal(model: Any) -> Any:
    """Return the model below its adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _repeats(config: Any) -> bool:
    """Return whether what a model has read can be repeated: layers with a state of another kind cannot."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    return {type(layer) for layer in DynamicCache(config=config).layers} <= {DynamicLayer, DynamicSlidingWindowLayer}
