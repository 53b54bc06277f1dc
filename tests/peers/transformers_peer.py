"""Run by hand: `transformers serve` with a model of random weights, made here, as a second peer of `HttpModel`.

It needs torch, `transformers[serving]` and httpx in the environment that runs it, see docs/real-server.md. It ends with 0
when a reply could be had, and prints what was sent and what came back.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from harness.models.http import HttpModel
from harness.records.messages import SYSTEM, USER, Message, Sampling

_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_READY_S = 120


def make_model(folder: Path) -> int:
    """Write a tiny Qwen2 with a tokenizer that is trained on the standard library; returns its parameters."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    bpe = ByteLevelBPETokenizer()
    bpe.train([os.__file__, contextlib.__file__], vocab_size=1024, special_tokens=_SPECIAL, show_progress=False)
    bpe.save(str(folder / "tokenizer.json"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    return sum(p.numel() for p in model.parameters())


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a model and yield the URL; the server's last words are printed where it does not come up."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).parent / "transformers"
    command = [str(program), "serve", str(folder), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with (folder / "log").open("wb") as log:
        env = {**os.environ, "HF_HUB_OFFLINE": "1"}
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)
    try:
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5, trust_env=False).status_code == 200:
                    yield f"http://127.0.0.1:{port}/v1"
                    return
            time.sleep(0.5)
        raise SystemExit((folder / "log").read_text(errors="replace")[-2000:])
    finally:
        process.terminate()
        process.wait(20)


def main() -> None:
    """Ask the server, and say what was seen."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        print(f"a model of {make_model(folder)} parameters")
        with served(folder) as url:
            model = HttpModel("vllm:tiny", url, str(folder), context_tokens=2048)
            asked = [Message(SYSTEM, "be brief"), Message(USER, "add 1 and 2")]
            print(f"counted before: {model.count(asked, tools=())} tokens")
            for seed in (1, 2):
                reply = model.reply(asked, tools=(), sampling=Sampling(max_tokens=16, seed=seed))
                print(f"{reply.finish_reason}, {reply.usage}, {reply.latency_s} s: {reply.message.content!r}")
                print(f"tokens recorded: {reply.token_ids is not None}; refused: {sorted(model._refused)}")
            print(f"counted after: {model.count(asked, tools=())} tokens")
            model.close()


if __name__ == "__main__":
    main()
