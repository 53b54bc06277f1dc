"""Evaluate expressions twice each, and write what comes out.

Input: on standard input one JSON object: `out` (a file to append to), `cases` (lists of [imports, expression]).
Output: one JSON list per expression: its index and [`value`, literal], [`items`, literal] of an iterator,
[`raises`, module and name of the exception, file and line that raised it], or [`other`]. An expression whose second
evaluation differs gives [`varies`]; one that takes long gives [`other`].
"""

import itertools
import json
import os
import signal
import sys
import types

import ssr_call_literals as literals

_MOST_ITEMS = 100
_MOST_S = 0.5
_ITERATORS = (types.GeneratorType, map, filter, zip, enumerate, type(reversed([])))
_ROOT = os.getcwd().rstrip("/") + "/"
_write, _islice, _encode, _literal = os.write, itertools.islice, json.JSONEncoder().encode, literals.literal
_iterators, _setitimer = _ITERATORS, signal.setitimer


class _TooSlowError(BaseException):
    """An expression takes too long."""


def _too_slow(number, frame):
    raise _TooSlowError


def _outcome(imports, expression):
    """Evaluate an expression once."""
    _setitimer(signal.ITIMER_REAL, _MOST_S)
    try:
        names = {}
        exec(imports, names)
        value = eval(expression, names)
        kind = "value"
        if type(value) in _iterators:
            kind, value = "items", list(_islice(value, _MOST_ITEMS))
            if len(value) == _MOST_ITEMS:
                return ["other"]
        text = _literal(value)
        return [kind, text] if text is not None else ["other"]
    except Exception as error:
        return _raised(error)
    except BaseException:
        return ["other"]
    finally:
        _setitimer(signal.ITIMER_REAL, 0)


def _raised(error):
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
            outcome = _outcome(imports, expression)
            if outcome[0] != "other" and _outcome(imports, expression) != outcome:
                outcome = ["varies"]
        except BaseException:
            # The time was up just as the evaluation ended.
            outcome = ["other"]
        if os.getpid() != pid:
            os._exit(0)
        _write(out, (_encode([index, outcome]) + "\n").encode())
    # Threads of the project may still run.
    os._exit(0)


if __name__ == "__main__":
    main()
