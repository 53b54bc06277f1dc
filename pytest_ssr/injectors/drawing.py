"""Where to change what, drawn evenly: module by module, function by function, the operator used least so far first.

A large file is not drawn more often than a small one, and an operator with many places no more often than a rare one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from pytest_ssr.injectors.equivalence import fingerprint, parses, scope_text
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.injectors.python_source import Edit, ParsedSource, Scope, parse, scopes, splice

Change = tuple[str, tuple[Edit, ...]]
Enumerate = Callable[[ParsedSource, Scope, Random], Sequence[Change]]


@dataclass(slots=True)
class _Place:
    """One function, class or statement, and the changes of it that are left."""

    scope: Scope
    changes: dict[str, list[tuple[Edit, ...]]] | None = None
    seen: set[str] = field(default_factory=set)


def draw(tree: SourceTree, *, strategy: str, seed: int, enumerate_changes: Enumerate) -> Iterator[Candidate]:
    """Yield candidates until every change of every place has been drawn; each parses and differs in effect."""
    chance = Random(f"{strategy}:{seed}")
    used: Counter[str] = Counter()
    modules = [m for m in (_Module(tree, p, chance, enumerate_changes) for p in tree.code_paths()) if m]
    while modules:
        chance.shuffle(modules)
        for module in list(modules):
            found = module.next(used)
            if found is None:
                modules.remove(module)
                continue
            scope, operator, edits = found
            data = splice(module.source.data, edits)
            at = min(edits, key=lambda e: e.start)
            yield Candidate(
                strategy=strategy,
                operator=operator,
                changes={module.path: data},
                path=module.path,
                line=module.source.data.count(b"\n", 0, at.start) + 1,
                scope=scope.qualname,
                detail=_detail(module.source, at),
            )


class _Module:
    """One file, parsed when it is first drawn."""

    def __init__(self, tree: SourceTree, path: str, chance: Random, enumerate_changes: Enumerate) -> None:
        self.path = path
        self._tree, self._chance, self._enumerate = tree, chance, enumerate_changes
        self._source: ParsedSource | None = None
        self._places: list[_Place] | None = None
        self._round: list[_Place] = []

    @property
    def source(self) -> ParsedSource:
        """The parsed file."""
        assert self._source is not None
        return self._source

    def next(self, used: Counter[str]) -> tuple[Scope, str, tuple[Edit, ...]] | None:
        """Return a change at the next place, or None when there is none left."""
        if self._places is None:
            self._source = parse(self.path, self._tree.read(self.path))
            usable = self._source is not None and parses(self._source.data)
            self._places = [_Place(s) for s in scopes(self.source)] if usable else []
        while self._places:
            if not self._round:
                self._round = list(self._places)
                self._chance.shuffle(self._round)
            place = self._round.pop()
            change = self._draw(place, used)
            if change is not None:
                return place.scope, *change
            self._places.remove(place)
        return None

    def _draw(self, place: _Place, used: Counter[str]) -> Change | None:
        indented = scope_text(self.source, place.scope)[:1] in (b" ", b"\t", b"\f")
        if place.changes is None:
            place.changes = {}
            for operator, edits in self._enumerate(self.source, place.scope, self._chance):
                place.changes.setdefault(operator, []).append(edits)
            original = fingerprint(scope_text(self.source, place.scope), indented=indented)
            if original is None:
                return None
            place.seen.add(original)
        while place.changes:
            least = min(used[o] for o in place.changes)
            operator = self._chance.choice([o for o in place.changes if used[o] == least])
            rest = place.changes[operator]
            edits = rest.pop(self._chance.randrange(len(rest)))
            if not rest:
                del place.changes[operator]
            name = self._name(place.scope, edits, indented)
            if name is not None and name not in place.seen:
                place.seen.add(name)
                used[operator] += 1
                return operator, edits
        return None

    def _name(self, scope: Scope, edits: tuple[Edit, ...], indented: bool) -> str | None:
        """Return the fingerprint of the changed scope; None when it is no Python any more."""
        try:
            moved = [Edit(e.start - scope.start, e.end - scope.start, e.text) for e in edits]
            return fingerprint(splice(scope_text(self.source, scope), moved), indented=indented)
        except ValueError:
            return None


def _detail(source: ParsedSource, edit: Edit) -> str:
    """Return what became of what, shortened."""

    def short(text: bytes) -> str:
        words = " ".join(text.decode(errors="replace").split())
        return words if len(words) <= 40 else words[:37] + "..."

    old, new = short(source.data[edit.start : edit.end]), short(edit.text)
    if not old:
        return f"{new} added"
    return f"{old} -> {new}" if new else f"{old} removed"
