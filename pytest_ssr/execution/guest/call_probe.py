"""Evaluate expressions twice each, and write what comes out.

Input: on standard input one JSON object: `out` (a file to append to), `cases` (lists of [imports, expression]). An
expression may bind the instance whose method it calls to the name `ssr_instance`.
Output: one JSON list per expression: its index, an empty string, and [`value`, literal], [`items`, literal] of an
iterator, [`raises`, module and name of the exception, file and line that raised it], [`object`], or [`other`]; and
after an object one per public attribute, with its name and [`value`, literal], and those for its text, `__str__`,
whether it is true, `__bool__`, the list of its items, `__iter__`, and of its pairs, `__items__`. If a method returns
None, the same follows for the instance after the call, each attribute after a dot. An expression whose second
evaluation differs gives [`varies`]; one that takes long gives [`other`], and after several of these no more are
evaluated.
"""

import itertools
import json
import operator
import os
import signal
import sys
import types

import ssr_call_literals as literals

_MOST_ITEMS, _MOST_ATTRIBUTES = 100, 20
_MOST_S, _MOST_SLOW = 0.5, 6
_slow = []
_ITERATORS = (types.GeneratorType, map, filter, zip, enumerate, type(reversed([])))
_COMPUTED = (property, types.MemberDescriptorType)
_ROOT = os.getcwd().rstrip("/") + "/"
_write, _islice, _encode, _literal = os.write, itertools.islice, json.JSONEncoder().encode, literals.equal_literal
_iterators, _setitimer = _ITERATORS, signal.setitimer


class _TooSlowError(BaseException):
    """An expression takes too long."""


def _too_slow(number, frame):
    _slow.append(number)
    raise _TooSlowError


def _outcomes(imports, expression):
    """Evaluate an expression once; return pairs of an attribute, or an empty string, and an outcome."""
    _setitimer(signal.ITIMER_REAL, _MOST_S)
    try:
        names = {}
        exec(imports, names)
        value = eval(expression, names)
        kind = "value"
        if type(value) in _iterators:
            kind, value = "items", list(_islice(value, _MOST_ITEMS))
            if len(value) == _MOST_ITEMS:
                return [["", ["other"]]]
        found = described(value, kind)
        if value is None and "ssr_instance" in names:
            after = described(names["ssr_instance"])
            found += [["." + attribute, outcome] for attribute, outcome in after if outcome[0] == "value"]
        return found
    except Exception as error:
        return [["", raised(error)]]
    except BaseException:
        return [["", ["other"]]]
    finally:
        _setitimer(signal.ITIMER_REAL, 0)


def described(value, kind="value"):
    """Return pairs of an attribute, or an empty string, and an outcome, for a value."""
    text = _literal(value)
    return [["", [kind, text]]] if text is not None else _attributes(value)


def _attributes(value):
    """Return the public attributes of an object that have literals, without methods; none that raises an exception."""
    kind = type(value)
    computed = [n for base in kind.__mro__ for n, item in base.__dict__.items() if isinstance(item, _COMPUTED)]
    names = sorted(n for n in {*getattr(value, "__dict__", ()), *computed} if type(n) is str and not n.startswith("_"))
    readers = [(name, operator.attrgetter(name)) for name in names[:_MOST_ATTRIBUTES]]
    if not issubclass(kind, (str, bytes)) and hasattr(kind, "__iter__") and hasattr(kind, "__len__"):
        readers.append(("__iter__", _items))
        if hasattr(kind, "items"):
            readers.append(("__items__", lambda mapping: _items(list(_islice(mapping.items(), _MOST_ITEMS)))))
    if hasattr(kind, "__bool__"):
        readers.append(("__bool__", bool))
    if kind.__str__ is not object.__str__:
        readers.append(("__str__", str))
    pairs = [(name, _text(read, value)) for name, read in readers]
    found = [[n, ["value", text]] for n, text in pairs if text and (n != "__str__" or " at 0x" not in text)]
    return [["", ["object"]], *found] if found else [["", ["other"]]]


def _items(value):
    if len(value) >= _MOST_ITEMS:
        raise ValueError
    return list(_islice(value, _MOST_ITEMS))


def _text(read, value):
    """Return the literal of a part of an object; None if it has no literal, or code of the project raises."""
    try:
        return _literal(read(value))
    except (Exception, SystemExit):
        return None


def raised(error):
    """Return the outcome of what ends in an exception."""
    kind, trace = type(error), error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    path = os.path.realpath(trace.tb_frame.f_code.co_filename)
    relative = path[len(_ROOT) :] if path.startswith(_ROOT) else ""
    return ["raises", kind.__module__, getattr(kind, "__qualname__", ""), relative, trace.tb_lineno]


def main():
    """Evaluate all expressions."""
    job = json.loads(sys.stdin.read())
    out = os.open(job["out"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    pid = os.getpid()
    # As with `python -m`; the first entry was the folder of this file.
    sys.path[0] = os.getcwd()
    signal.signal(signal.SIGALRM, _too_slow)
    for index, (imports, expression) in enumerate(job["cases"]):
        try:
            outcomes = _outcomes(imports, expression)
            if outcomes != [["", ["other"]]] and _outcomes(imports, expression) != outcomes:
                outcomes = [["", ["varies"]]]
        except BaseException:
            # The time was up just as the evaluation ended.
            outcomes = [["", ["other"]]]
        if os.getpid() != pid or len(_slow) > _MOST_SLOW:
            os._exit(0)
        lines = [_encode([index, attribute, outcome]) + "\n" for attribute, outcome in outcomes]
        _write(out, "".join(lines).encode())
    # Threads of the project may still run.
    os._exit(0)


if __name__ == "__main__":
    main()
