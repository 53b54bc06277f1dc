"""Measure `ssr train` for language models on this machine's GPU: time, tokens, memory, and what is learned.

Run: `python benchmarks/language_training.py --rows FOLDER --folder DIR --out RESULT.md [--only ARM]`, with what
`ssr export` wrote in the formats sft, dpo and kto in FOLDER/sft, FOLDER/dpo and FOLDER/kto. The models have the shapes
of Qwen2.5 with 0.5 and 7 billion parameters and random weights, so that nothing is downloaded; their speed is that of
trained weights. The settings are those of docs/training. One arm is killed and continued, and compared with the same
training as a whole. For `grpo`, a model is first taught (`sft`) to reply with a repair or with a useless change,
equally often, in a small project; then real grades of its own rollouts in sandboxes train it. An arm that has finished
in DIR is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from harness.training.language.run_folder import RunFolder, read_lines  # noqa: E402

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    "0.5b": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "7b": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28},
}
"""As in the configurations of these models, and a tiny one to try this program on a CPU."""
HEADS = {"tiny": 2, "0.5b": 2, "7b": 4}
"""Heads of keys and values."""
EMBEDDINGS = {"tiny": 8192, "0.5b": 151_936, "7b": 152_064}
CONTEXT = 32_768
TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
PROJECT = {
    "shapes.py": (
        "def area(width, height):\n    return width * height\n\n\n"
        "def is_square(width, height):\n    return width == height\n\n\n"
        "def longest(sides):\n    best = 0\n    for side in sides:\n        if side > best:\n            best = side\n"
        "    return best\n"
    ),
    "test_shapes.py": (
        "from shapes import area, is_square, longest\n\n\n"
        "def test_area():\n    assert area(2, 3) == 6\n\n\ndef test_flat():\n    assert area(5, 0) == 0\n\n\n"
        "def test_square():\n    assert is_square(2, 2)\n\n\n"
        "def test_no_square():\n    assert not is_square(2, 3)\n\n\n"
        "def test_longest():\n    assert longest([1, 4, 2]) == 4\n\n\ndef test_none():\n    assert longest([]) == 0\n"
    ),
}


@dataclass(frozen=True)
class Arm:
    """One training."""

    name: str
    method: str
    shape: str
    config: str
    options: tuple[str, ...]


def arms(small: str) -> list[Arm]:
    """Return the trainings. small: `0.5b`, or `tiny` in place of all shapes."""
    every = ("--updates", "12", "--log-every", "1", "--checkpoint-every", "100")
    few = ("--updates", "4", "--log-every", "1", "--checkpoint-every", "100")
    one, large = "0.5b-1-gpu", "7b-1-gpu"
    shape = "7b" if small == "0.5b" else small
    return [
        Arm("sft", "sft", small, one, every),
        Arm("sft, weights in bfloat16", "sft", small, one, (*every, "--dtype", "bfloat16")),
        Arm("dpo", "dpo", small, one, (*few, "--learning-rate", "5e-6")),
        Arm("kto", "kto", small, one, (*few, "--learning-rate", "5e-6")),
        Arm("sft, LoRA", "sft", shape, large, few),
        Arm("sft, LoRA on 4 bits", "sft", shape, large, (*few, "--bits", "4")),
    ]


def make_tokenizer(folder: Path, rows: Path) -> Path:
    """Train a tokenizer of 8,000 tokens on the rows and the standard library."""
    if (folder / "tokenizer.json").exists():
        return folder
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    texts = [*rows.glob("*/data/train.jsonl"), *sorted(Path(os.__file__).parent.glob("*.py"))]
    bpe = ByteLevelBPETokenizer()
    bpe.train([str(t) for t in texts], vocab_size=8000, special_tokens=list(MARKS), show_progress=False)
    bpe.save(str(folder / "bpe.json"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "bpe.json"), eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def make_model(folder: Path, shape: str, tokenizer: Path) -> Path:
    """Write a model with random weights."""
    if (folder / "config.json").exists():
        return folder
    import torch
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    loaded = AutoTokenizer.from_pretrained(tokenizer)
    config = Qwen2Config(
        **SHAPES[shape], num_key_value_heads=HEADS[shape], vocab_size=EMBEDDINGS[shape],
        max_position_embeddings=CONTEXT, rope_theta=1e6, tie_word_embeddings=shape != "7b",
        eos_token_id=loaded.eos_token_id, pad_token_id=loaded.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen2ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    loaded.save_pretrained(folder)
    del model
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return folder


def command(method: str, source: Path, model: Path, out: Path, config: str, *options: str) -> list[str]:
    """Return the command of a training."""
    file = ROOT / "docs" / "training" / f"{config}.yaml"
    return [
        *(sys.executable, "-m", "harness.cli", "train", method, str(source), "--model", str(model), "--out", str(out)),
        *("--config", str(file), "--json", *options),
    ]


def run(argv: Sequence[str], log: Path, limit: float) -> float | None:
    """Run a command and return its seconds; None if it failed, which is printed."""
    begin = time.monotonic()
    try:
        with log.open("wb") as file:
            subprocess.run(argv, stdout=file, stderr=subprocess.STDOUT, check=True, timeout=limit, cwd=ROOT)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"{log.stem}: {type(error).__name__}: {log.read_text(errors='replace')[-1500:]}", flush=True)
        return None
    return time.monotonic() - begin


def report_of(out: Path) -> dict[str, Any] | None:
    """Return the report of a training; None if it has not finished."""
    return RunFolder(out).report()


def metrics_of(out: Path) -> list[dict[str, Any]]:
    """Return the metrics of a training, as far as it went."""
    file = RunFolder(out).metrics
    return read_lines(file) if file.exists() else []


def killed_and_continued(model: Path, rows: Path, folder: Path) -> list[str]:
    """Train as a whole, and killed after 7 of 12 updates and continued; return lines for the result."""
    options = ("--updates", "12", "--log-every", "1", "--checkpoint-every", "4", "--checkpoints", "1")
    outs = {name: folder / f"resume-{name}" for name in ("whole", "killed")}
    argv = {name: command("sft", rows / "sft", model, out, "0.5b-1-gpu", *options) for name, out in outs.items()}
    if not report_of(outs["whole"]):
        run(argv["whole"], folder / "resume-whole.log", 240)
    if not report_of(outs["killed"]):
        log = (folder / "resume-killed.log").open("wb")
        with subprocess.Popen(argv["killed"], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT) as process:
            while process.poll() is None and len(metrics_of(outs["killed"])) < 7:
                time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
        run(argv["killed"], folder / "resume-continued.log", 240)
    whole, killed = (metrics_of(out) for out in outs.values())
    report = report_of(outs["killed"])
    if report is None or len(whole) != len(killed):
        return ["A training that was killed did not continue to its end."]
    differences = [abs(a["loss"] - b["loss"]) for a, b in zip(whole, killed, strict=True)]
    return [
        f"A training that was killed continued after update {report['continued_after']} of {report['updates']}: its "
        f"losses differ from those of an uninterrupted one by at most {max(differences):.2g} "
        f"(they fall from {whole[0]['loss']:.3f} to {whole[-1]['loss']:.3f})."
    ]


def taught_rows(project: Path, store: Path, out: Path, sandbox: str) -> None:
    """Write rows for `sft`: episodes in which each bug of a store is repaired, and others in which it is not."""
    from harness.environments import EnvironmentSettings, StoreTasks
    from harness.environments.episodes import Episodes

    tasks = StoreTasks(project=project, store=store, sandbox=sandbox, python=Path(sys.executable))
    opened = tasks.open()
    bugs = list(opened.ids)
    opened.close()
    rows = []
    episodes = Episodes(tasks, EnvironmentSettings())
    for bug in bugs:
        (diff,) = [
            path.read_text() for path in (store / "artifacts").glob(f"**/{bug}/bug_inject.diff") if path.is_file()
        ]
        for replies in _scripts(diff):
            episode = episodes.begin(seed=0, task=bug)
            messages = [
                {"role": "system", "content": episode.system},
                {"role": "user", "content": episode.prompt},
            ]
            for reply in replies:
                turn = episodes.write(reply)
                messages.append({"role": "assistant", "content": reply})
                if turn.outcome is None:
                    messages.append({"role": "user", "content": turn.output})
            print(f"{bug}: {episodes.current.outcome}", flush=True)
            rows.append({"messages": messages})
    episodes.close()
    out.mkdir(parents=True, exist_ok=True)
    (out / "data").mkdir(exist_ok=True)
    (out / "data" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _scripts(diff: str) -> Iterator[list[str]]:
    """Yield the replies of an episode that reverses a diff of one hunk, and of one that adds a comment."""
    path = next(line for line in diff.splitlines() if line.startswith("+++ ")).removeprefix("+++ b/")
    hunk = diff[diff.index("\n@@") + 1 :].splitlines()[1:]
    old = "\n".join(line[1:] for line in hunk if line[:1] in (" ", "+"))
    new = "\n".join(line[1:] for line in hunk if line[:1] in (" ", "-"))
    submit = "```submit\n{}\n```\n"
    changes: list[dict[str, Any]] = [
        {"command": "str_replace", "path": path, "old_str": old, "new_str": new},
        {"command": "insert", "path": path, "insert_line": 0, "new_str": "# Nothing to see here.\n"},
    ]
    for change in changes:
        yield [f"```editor\n{json.dumps(change)}\n```\n", submit]


def rewards(shape: str, tokenizer: Path, folder: Path, sandbox: str, updates: int, limit: float) -> list[str]:
    """Teach a model two kinds of replies, train it by grades, and return lines for the result."""
    project, store = folder / "shapes", folder / "shapes-store"
    project.mkdir(exist_ok=True)
    for name, text in PROJECT.items():
        (project / name).write_text(text)
    environment = ("--python", sys.executable, "--sandbox", sandbox, "--store", str(store))
    inject = [sys.executable, "-m", "harness.cli", "inject", str(project), "--count", "2", *environment]
    if not (folder / "taught-rows").exists():
        if run(inject, folder / "inject.log", 120) is None:
            return ["No bug could be injected."]
        taught_rows(project, store, folder / "taught-rows", sandbox)
    model, taught, out = make_model(folder / f"model-{shape}", shape, tokenizer), folder / "taught", folder / "grpo"
    if not report_of(taught):
        teaching = ("--updates", "240", "--accumulation", "1", "--batch", "4", "--learning-rate", "2e-4")
        teaching = (*teaching, "--log-every", "10", "--checkpoint-every", "1000")
        argv = command("sft", folder / "taught-rows", model, taught, "0.5b-1-gpu", *teaching)
        if run(argv, folder / "taught.log", limit) is None:
            return ["The model could not be taught."]
    if not report_of(out):
        acting = ("--roles", "solver", "--updates", str(updates), "--tasks", "2", "--group", "8", "--batch", "4")
        acting = (*acting, "--steps", "3", "--reply-tokens", "220", "--completion-tokens", "1500", *environment)
        acting = (*acting, "--learning-rate", "1e-5", "--schedule", "constant", "--warmup", "0")
        acting = (*acting, "--checkpoint-every", "1000")
        run(command("grpo", project, taught / "model", out, "0.5b-1-gpu", *acting), folder / "grpo.log", limit)
    lines = metrics_of(out)
    report = report_of(out) or {}
    learned = [line["loss"] for line in metrics_of(taught)]
    return [
        f"Taught by `sft`: the loss falls from {learned[0]:.3f} to {learned[-1]:.3f}. By `grpo`, 16 rollouts in an "
        f"update, the reward and the solve rate of each:",
        "",
        "| update | reward | solve rate | seconds |",
        "|---|---|---|---|",
        *(f"| {x['step']} | {x['reward']:.2f} | {x.get('solve_rate', 0):.2f} | {x['seconds']:.1f} |" for x in lines),
        "",
        f"Median seconds of an update {report.get('seconds_per_update')}, memory {report.get('peak_gpu_gib')} GiB.",
    ]


def table(done: dict[Arm, dict[str, Any]]) -> Iterator[str]:
    """Yield the table of the arms on rows."""
    yield "| training | model | settings | updates | s/update | tokens/s | GiB of the GPU | loss |"
    yield "|---|---|---|---|---|---|---|---|"
    for arm, report in done.items():
        numbers = [report[name] for name in ("seconds_per_update", "tokens_per_second", "peak_gpu_gib")]
        shown = " | ".join("-" if n is None else f"{n:,.0f}" if n >= 1000 else f"{n:.4g}" for n in numbers)
        losses = f"{report['loss_first']:.4f} to {report['loss_last']:.4f}"
        yield f"| {arm.name} | {arm.shape} | {arm.config} | {report['updates']} | {shown} | {losses} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shape", default="0.5b", choices=["0.5b", "tiny"], help="tiny: to try this program on a CPU")
    parser.add_argument("--sandbox", default="auto")
    names = [*(arm.name for arm in arms("0.5b")), "resume", "grpo"]
    parser.add_argument("--only", action="append", default=[], choices=names, help="run this one; can be repeated")
    parser.add_argument("--grpo-updates", type=int, default=20)
    parser.add_argument("--limit", type=float, default=240, help="most seconds of one training")
    options = parser.parse_args()
    folder, rows = options.folder.resolve(), options.rows.resolve()
    folder.mkdir(parents=True, exist_ok=True)

    def wanted(name: str) -> bool:
        return not options.only or name in options.only

    begin = time.monotonic()
    tokenizer = make_tokenizer(folder / "tokenizer", rows)
    done: dict[Arm, dict[str, Any]] = {}
    parts: list[str] = []

    def write() -> None:
        import torch

        gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
        packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "trl", "peft"))
        head = f"# Training language models\n\n{datetime.now(UTC):%Y-%m-%d}, {gpu}, Python "
        head += f"{platform.python_version()}, {packages}. Random weights in the shapes of Qwen2.5.\n"
        options.out.write_text("\n".join([head, *table(done), "", *parts]) + "\n")

    for arm in arms(options.shape):
        out = folder / arm.name.replace(", ", "-").replace(" ", "-")
        if wanted(arm.name) and not report_of(out):
            model = make_model(folder / f"model-{arm.shape}", arm.shape, tokenizer)
            argv = command(arm.method, rows / arm.method, model, out, arm.config, *arm.options)
            run(argv, folder / f"{out.name}.log", options.limit)
        if report := report_of(out):
            done[arm] = report
        if not wanted(arm.name):
            continue
        print(f"{time.monotonic() - begin:.0f} s: {arm.name} {report and report['seconds_per_update']}", flush=True)
        write()
    if wanted("resume"):
        parts += killed_and_continued(
            make_model(folder / f"model-{options.shape}", options.shape, tokenizer), rows, folder
        )
        print(f"{time.monotonic() - begin:.0f} s: {parts[-1]}", flush=True)
        write()
    if wanted("grpo"):
        parts += ["", *rewards(options.shape, tokenizer, folder, options.sandbox, options.grpo_updates, options.limit)]
        print(f"{time.monotonic() - begin:.0f} s\n" + "\n".join(parts), flush=True)
        write()


if __name__ == "__main__":
    main()
