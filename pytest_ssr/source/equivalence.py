"""Say why no test can notice a change: because that is proven, or because something suggests so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from pytest_ssr.source.equivalence_proofs import equivalence_found
from pytest_ssr.source.equivalence_signs import EquivalenceSign, sign_of
from pytest_ssr.source.normal_form import EquivalenceProof

Equivalence = EquivalenceProof | EquivalenceSign
_KNOWN: dict[str, Equivalence] = {str(e): e for e in (*EquivalenceSign, *EquivalenceProof)}


def common_equivalence(changes: Iterable[tuple[str, bytes, bytes | None]]) -> Equivalence | None:
    """Return why changes to several files are equivalent; None unless all of them are.

    The first sign if any of them has only a sign; otherwise the first proof.
    changes: path, original content and new content of each file.
    """
    found: list[Equivalence] = []
    for change in changes:
        equivalence = equivalence_of_change(*change)
        if equivalence is None:
            return None
        found.append(equivalence)
    return next((e for e in found if not is_proven(e)), found[0]) if found else None


def common_sign(changes: Iterable[tuple[str, bytes, bytes | None]]) -> EquivalenceSign | None:
    """Return the first sign of changes to several files, without looking for proofs; None unless all have one."""
    signs = [sign_of(*change) for change in changes]
    return signs[0] if signs and None not in signs else None


def equivalence_of_change(path: str, original: bytes, changed: bytes | None) -> Equivalence | None:
    """Return the proof that a change of a file is equivalent, or the sign of it; None without either."""
    found = equivalence_found(path, original, changed)
    if found is not None and found.is_certain:
        return found.proof
    sign = sign_of(path, original, changed)
    if sign is not None or found is None:
        return sign
    return EquivalenceSign.LIMIT if found.proof is EquivalenceProof.BOUND else EquivalenceSign.UNORDERED


def equivalence_named(name: str) -> Equivalence | None:
    """Return the proof or sign with a name, as results store it; None if this release knows none."""
    return _KNOWN.get(name)


def is_proven(equivalence: Equivalence | None) -> TypeGuard[EquivalenceProof]:
    """Return whether an equivalence is a proof."""
    return isinstance(equivalence, EquivalenceProof)


def described(equivalence: Equivalence) -> str:
    """Return an equivalence as a person reads it."""
    if is_proven(equivalence):
        return f"equivalent: {equivalence.reason}"
    return f"probably equivalent: {equivalence}"
