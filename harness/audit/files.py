"""Read and write the files of an audit: its cards, their figures as CSV, and which tasks they let pass."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness.audit.card import Card, ChangeStatus, Sharpness
from harness.exporters.tasks import artifact_of_id
from harness.leaderboard.escaping import clean, for_csv, shown
from harness.records.task_choice import AuditedTask, TaskChoice
from harness.storage.atomic_write import write_text
from pytest_ssr.errors import SettingsError, StoreError, StoreWriteError, os_error_advice
from pytest_ssr.records.decoding import json_object
from pytest_ssr.records.reasons import Reason

CARDS = "cards.jsonl"
_Value = str | int | float | None


def read_cards(path: Path) -> dict[str, Card]:
    """Return the cards of an audit by their tasks. path: a file of cards, or the folder that `ssr audit` wrote.

    Of several cards of a task, the last counts. Raises SettingsError, which names the file and the line, for a line
    that is no card, and for a file without any.
    """
    file = path / CARDS if path.is_dir() else path
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        detail = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise SettingsError(
            f"--audit {file} cannot be read: {detail}; name the folder of an ssr audit, or its {CARDS}", option="audit"
        ) from None
    cards = dict(_cards(file, lines))
    if not cards:
        raise SettingsError(f"--audit {file} holds no card; run ssr audit on the tasks", option="audit")
    return cards


def _cards(file: Path, lines: Iterable[str]) -> Iterator[tuple[str, Card]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            card = Card.read(json_object(line))
        except StoreError as error:
            raise SettingsError(
                f"--audit {file}, line {number}: not a card ({error}); run the same ssr audit again, which replaces it",
                option="audit",
            ) from None
        yield card.task, card


def choice_of(cards: Mapping[str, Card], min_sharpness: float | None = None) -> TaskChoice:
    """Return which tasks these cards let pass. A card of a bug's row counts for the bug, too."""
    audited: dict[str, AuditedTask] = {}
    for name, card in cards.items():
        task = AuditedTask(card.is_sound if card.is_audited else None, card.sharpness)
        if bug := artifact_of_id(name):
            audited.setdefault(bug, task)
        audited[name] = task
    return TaskChoice(audited, min_sharpness)


def write_csv(path: Path, cards: Iterable[Card]) -> None:
    """Write a row per card and a column per figure; what is unknown is empty. Raises StoreWriteError."""
    try:
        write_text(path, csv_text(cards))
    except OSError as error:
        raise StoreWriteError(f"{error.filename or path}: {os_error_advice(error)}") from None


def csv_text(cards: Iterable[Card]) -> str:
    """Return the cards as CSV (RFC 4180), with texts that a spreadsheet would treat as formulas escaped."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(_row(Card(""))), lineterminator="\r\n")
    writer.writeheader()
    for card in cards:
        writer.writerow({name: _safe(value) for name, value in _row(card).items()})
    return file.getvalue()


def _safe(value: _Value) -> _Value:
    return for_csv(clean(value)) if isinstance(value, str) else value


def _row(card: Card) -> dict[str, _Value]:
    return {
        "task": card.task,
        "repo": card.repo,
        "family": card.family,
        **_reason("", card.problem),
        **_soundness(card),
        **_sharpness(card.sharp),
        **_narrowness(card),
        **_sealing(card),
        "grade_s": card.cost.grade_s or None,
        "memory_mib": card.cost.memory_mib,
        "tree_mib": card.cost.tree_mib or None,
        "audit_cpu_s": card.cost.audit_cpu_s or None,
        "audit_s": card.cost.audit_s or None,
    }


def _reason(prefix: str, reason: Reason | None) -> dict[str, _Value]:
    code, text = (str(reason.code), reason.text) if reason is not None else (None, None)
    return {f"{prefix}problem_code": code, f"{prefix}problem": text}


def _soundness(card: Card) -> dict[str, _Value]:
    sound = card.sound
    return {
        "sound": None if sound is None else "yes" if sound.is_sound else "no",
        "unsound_because": None if sound is None else _joined(map(str, sound.problems)),
        "unsteady": None if sound is None else len(sound.unsteady),
        "unsteady_tests": None if sound is None else _joined(f"{test.test} ({test.cause})" for test in sound.unsteady),
        "conditions": None if sound is None else _joined(map(str, sound.conditions)),
        "set_aside": None if sound is None else len(sound.set_aside),
    }


def _sharpness(sharp: Sharpness | None) -> dict[str, _Value]:
    known = sharp if sharp is not None and sharp.counted else None
    return {
        "sharpness": None if known is None else known.rate,
        "sharpness_low": None if known is None else known.interval[0],
        "sharpness_high": None if known is None else known.interval[1],
        "counted": None if sharp is None else sharp.counted,
        **{status.replace("-", "_"): None if sharp is None else sharp.count(status) for status in ChangeStatus},
        "proven": None if sharp is None else sharp.proven,
        "tried": None if sharp is None else len(sharp.changes),
        "planned": None if sharp is None else sharp.planned,
        **_reason("sharp_", sharp.problem if sharp is not None else None),
    }


def _narrowness(card: Card) -> dict[str, _Value]:
    known = card.narrow if card.narrow is not None and card.narrow.is_known else None
    return {
        "unknown_names": None if known is None else len(known.tokens),
        "names": None if known is None else _joined(token.text for token in known.tokens),
    }


def _sealing(card: Card) -> dict[str, _Value]:
    sealed = card.sealed
    known = sealed if sealed is not None and sealed.tried else None
    ours = [] if sealed is None else [result for result in sealed.forgeries if result.ours is not None]
    return {
        "verifier": None if sealed is None else sealed.verifier,
        "forgeries_tried": None if sealed is None else sealed.tried,
        "forgeries_accepted": None if known is None else len(known.accepted),
        "accepted": None if known is None else _joined(known.accepted),
        "ours_tried": None if sealed is None else len(ours),
        "ours_accepted": sum(bool(result.ours) for result in ours) if ours else None,
        "leaks": None if sealed is None else _joined(map(str, sealed.leaks)),
        **_reason("sealed_", sealed.problem if sealed is not None else None),
    }


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(map(shown, texts))
