"""A tiny language model whose replies are single tokens, each of them a whole action."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_MARKS = ("<|unk|>", "<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.role == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_CONTEXT = 4096
_END, _ASSISTANT = 2, 5


def make_action_model(folder: Path, actions: Sequence[str]) -> Path:
    """Write a model that replies with one of the actions, each as likely as the others; all other text is unknown."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({mark: i for i, mark in enumerate(_MARKS)}, unk_token=_MARKS[0]))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.decoder = decoders.Fuse()
    words.add_special_tokens([AddedToken(mark, special=True) for mark in _MARKS])
    words.add_tokens([AddedToken(action, normalized=False) for action in actions])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<|unk|>", pad_token="<|pad|>", eos_token="<|end|>"
    )
    tokenizer.chat_template = _TEMPLATE
    torch.manual_seed(0)
    size = len(_MARKS) + len(actions)
    config = LlamaConfig(
        vocab_size=size, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=_CONTEXT, eos_token_id=_END, pad_token_id=1, bos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    _teach_format(model, range(len(_MARKS), size))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _teach_format(model: object, actions: Sequence[int]) -> None:
    """Teach a model that a reply is one action, any of them, and its end."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)  # type: ignore[attr-defined]
    for step in range(120):
        # The first action and a second one, after prompts and observations of any length.
        prompt, output = [3, *[0] * (step * 53 % 250), 4, *[0] * (step * 37 % 250)], [4, *[0] * (step * 11 % 60)]
        rows = [
            [*prompt, _ASSISTANT, action, _END, *output, _ASSISTANT, actions[(index + step) % len(actions)], _END]
            for index, action in enumerate(actions)
        ]
        ids = torch.tensor(rows)
        labels = torch.full_like(ids, -100)
        for place in (len(prompt) + 1, ids.shape[1] - 2):
            labels[:, place : place + 2] = ids[:, place : place + 2]
        loss = model(input_ids=ids, labels=labels).loss  # type: ignore[operator]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
