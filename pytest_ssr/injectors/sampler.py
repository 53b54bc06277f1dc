"""Sample changes evenly: module by module, function by function, with the least used operator first.

A large file is not drawn more often than a small one, nor an operator with many locations more often than a rare one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from pytest_ssr.errors import ProjectError
from pytest_ssr.injectors.equivalence import fingerprint, parses, scope_text
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.source.syntax_tree import Edit, ParsedSource, Scope, parse, scopes, splice


def interleave(sources: Sequence[Iterator[Candidate]]) -> Iterator[Candidate]:
    """Yield one candidate of each source in turn; raises the first ProjectError if all sources raise one."""
    live = list(sources)
    errors: list[ProjectError] = []
    while live:
        for source in list(live):
            try:
                yield next(source)
            except StopIteration:
                live.remove(source)
            except ProjectError as error:
                errors.append(error)
                live.remove(source)
    if errors and len(errors) == len(sources):
        raise errors[0]


Change = tuple[str, tuple[Edit, ...]]
Enumerate = Callable[[ParsedSource, Scope, Random], Sequence[Change]]


@dataclass(slots=True)
class _Location:
    """One function, class or module, and its remaining changes."""

    scope: Scope
    changes: dict[str, list[tuple[Edit, ...]]] | None = None
    seen: set[str] = field(default_factory=set)


def draw(tree: SourceTree, *, strategy: str, seed: int, enumerate_changes: Enumerate) -> Iterator[Candidate]:
    """Yield candidates until every change of every location is drawn; each parses and differs in effect."""
    rng = Random(f"{strategy}:{seed}")
    used: Counter[str] = Counter()
    modules = [m for m in (_Module(tree, p, rng, enumerate_changes) for p in tree.code_paths()) if m]
    while modules:
        rng.shuffle(modules)
        for module in list(modules):
            change = module.next(used)
            if change is None:
                modules.remove(module)
                continue
            scope, operator, edits = change
            data = splice(module.source.data, edits)
            first_edit = min(edits, key=lambda e: e.start)
            yield Candidate(
                strategy=strategy,
                operator=operator,
                changes={module.path: data},
                path=module.path,
                line=module.source.data.count(b"\n", 0, first_edit.start) + 1,
                scope=scope.qualname,
                detail=_detail(module.source, first_edit),
            )


class _Module:
    """One file, parsed when it is first drawn."""

    def __init__(self, tree: SourceTree, path: str, rng: Random, enumerate_changes: Enumerate) -> None:
        self.path = path
        self._tree, self._rng, self._enumerate = tree, rng, enumerate_changes
        self._source: ParsedSource | None = None
        self._locations: list[_Location] | None = None
        self._round: list[_Location] = []

    @property
    def source(self) -> ParsedSource:
        """The parsed file."""
        assert self._source is not None
        return self._source

    def next(self, used: Counter[str]) -> tuple[Scope, str, tuple[Edit, ...]] | None:
        """Return a change at the next location, or None if none is left."""
        if self._locations is None:
            self._source = parse(self.path, self._tree.read(self.path))
            usable = self._source is not None and parses(self._source.data)
            self._locations = [_Location(s) for s in scopes(self.source)] if usable else []
        while self._locations:
            if not self._round:
                self._round = list(self._locations)
                self._rng.shuffle(self._round)
            location = self._round.pop()
            change = self._draw(location, used)
            if change is not None:
                return location.scope, *change
            self._locations.remove(location)
        return None

    def _draw(self, location: _Location, used: Counter[str]) -> Change | None:
        indented = scope_text(self.source, location.scope)[:1] in (b" ", b"\t", b"\f")
        if location.changes is None:
            location.changes = {}
            for operator, edits in self._enumerate(self.source, location.scope, self._rng):
                location.changes.setdefault(operator, []).append(edits)
            original = fingerprint(scope_text(self.source, location.scope), indented=indented)
            if original is None:
                return None
            location.seen.add(original)
        while location.changes:
            least = min(used[o] for o in location.changes)
            operator = self._rng.choice([o for o in location.changes if used[o] == least])
            rest = location.changes[operator]
            edits = rest.pop(self._rng.randrange(len(rest)))
            if not rest:
                del location.changes[operator]
            effect = self._fingerprint(location.scope, edits, indented)
            if effect is not None and effect not in location.seen:
                location.seen.add(effect)
                used[operator] += 1
                return operator, edits
        return None

    def _fingerprint(self, scope: Scope, edits: tuple[Edit, ...], indented: bool) -> str | None:
        """Return the fingerprint of the changed scope; None if it is no longer valid Python."""
        try:
            moved = [Edit(e.start - scope.start, e.end - scope.start, e.text) for e in edits]
            return fingerprint(splice(scope_text(self.source, scope), moved), indented=indented)
        except ValueError:
            return None


def _detail(source: ParsedSource, edit: Edit) -> str:
    """Return a short description of an edit: `old -> new`, `new added` or `old removed`."""

    def short(text: bytes) -> str:
        compact = " ".join(text.decode(errors="replace").split())
        return compact if len(compact) <= 40 else compact[:37] + "..."

    old, new = short(source.data[edit.start : edit.end]), short(edit.text)
    if not old:
        return f"{new} added"
    return f"{old} -> {new}" if new else f"{old} removed"
