"""The function by which planted tests write what they compare, with the test and the number of the assertion."""

from __future__ import annotations

EQUAL, NEAR, OPEN, HOLDS, END = "equal", "near", "open", "holds", "end"
"""Kinds of what is written: the sides of an equality; what a function of the code that is named like an assertion is
given; values of which the test knows how near is near enough; whether something holds; that a test has ended.
"""
_MOST_CHARS = 2000
_RECORDER = """
def NAME(kind, name, number, *values):
    import collections.abc, dataclasses, datetime, enum, numbers, os, pathlib, types

    def own(value, method):
        # Written by the project: what it returns is no evidence of what the value is.
        found = next((vars(c)[method] for c in type(value).__mro__ if method in vars(c)), None)
        built = (types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinMethodType)
        library = os.path.dirname(os.__file__) + os.sep
        written = isinstance(found, types.FunctionType) and found.__code__.co_filename.startswith(library)
        return not (written or isinstance(found, built))

    def plain(value, depth=0):
        for exact in (bool, int, float, str, bytes):
            if isinstance(value, exact):
                return value if type(value) is exact else exact.__add__(value, exact())
        if value is None or isinstance(value, complex) or depth > 20:
            return value
        if isinstance(value, numbers.Number) and not own(value, "__int__"):
            return int(value) if int(value) == value else float(value)
        if isinstance(value, collections.abc.Mapping):
            return {plain(k, depth + 1): plain(value[k], depth + 1) for k in value}
        for exact in (tuple, list):
            if isinstance(value, exact):
                return exact(plain(v, depth + 1) for v in value)
        if isinstance(value, collections.abc.Set):
            return {plain(v, depth + 1) for v in value}
        if isinstance(value, enum.Enum):
            return type(value).__name__, value.name
        if isinstance(value, datetime.datetime) and value.utcoffset() is not None:
            value = value.astimezone(datetime.timezone.utc)
        if isinstance(value, (datetime.date, datetime.time)):
            return type(value).__name__, value.isoformat()
        if isinstance(value, datetime.timedelta):
            return "timedelta", value.total_seconds()
        if isinstance(value, pathlib.PurePath):
            return "path", str(value)
        if dataclasses.is_dataclass(value) and type(value).__eq__.__code__.co_filename == "<string>":
            fields = [f.name for f in dataclasses.fields(value) if f.compare]
            return type(value).__name__, *(plain(getattr(value, name), depth + 1) for name in fields)
        if own(value, "__repr__"):
            raise ValueError
        return value

    def text(value):
        try:
            return repr(plain(value))[:MOST]
        except Exception:
            return "?"

    def truth(ask):
        try:
            return repr(bool(ask()))
        except Exception:
            return "None"

    # Before anything is compared: a value could become what it is compared with.
    texts = [text(v) for v in values] if kind != "holds" else [truth(lambda: values[0])]
    texts += [truth(lambda: values[0] == values[1])] if kind == "equal" else []
    with open(os.environ["SSR_VALUES"], "a", encoding="utf-8") as file:
        case = os.environ.get("PYTEST_CURRENT_TEST", "")
        file.write(ascii((name, case, number, kind, texts)) + "\\n")
"""


def recorder_of(name: str) -> bytes:
    """Return the function, of this name, that writes what it is given; it goes to the end of a file of tests."""
    return _RECORDER.replace("NAME", name).replace("MOST", str(_MOST_CHARS)).encode()
