"""The prompt of a model that writes repairs, and the form of its reply.

The prompt shows a function in which marks enclose the lines to rewrite. The reply is these lines between the
same marks: `<<<`, a line break, the lines, `>>>`. Tokenizers join a line break with the indentation after it, so a
reply is sampled after `<<<`: then its first token has the line break, and the indentation is what the model writes.

A prompt has at most about 2,700 characters. Of a function that is longer than 1,600, the lines nearest to the marks are
shown, and `# ...` stands for the others; a line outside of the marks is cut after 200 characters. What is known of a
failing test is cut after 160 characters (its name) and 240 characters (its assertion and its error).
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.solvers.writer.regions import Region, whole_lines

BEGIN, END = "<<<", ">>>"
"""The marks. Each is alone on its line, which is valid Python nowhere but in a string."""
_FUNCTION, _LINE = 1600, 200
_TEST, _TEXT = 160, 240
_OMITTED = "# ...\n"
_TASK = f"A Python function has a bug in the lines between {BEGIN} and {END}. Write these lines without the bug."

Message = dict[str, str]
"""A message of a chat: its role and its content."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of a failing test."""

    test: str
    """Its name."""
    assertion: str
    """The source of the assertion that fails; empty if it is unknown."""
    error: str
    """The message of the failure; empty if it is unknown."""


def question(region: Region, failure: Failure | None = None, *, task: str = _TASK) -> list[Message]:
    """Return the messages that ask for the lines of a region. task: what is asked for."""
    parts = [task, *([_described(failure)] if failure is not None else []), _marked(region)]
    return [{"role": "user", "content": "\n\n".join(parts)}]


def reply(lines: str) -> str:
    """Return the reply that consists of these lines. lines: empty, or with a line break at the end."""
    return f"{BEGIN}\n{lines}{END}"


def lines_of(text: str) -> str | None:
    """Return the lines in a reply, or None if it has another form, such as one that was cut off."""
    begin, _, rest = text.partition("\n")
    lines = rest.split("\n")
    if begin != BEGIN or END not in lines:
        return None
    return "".join(f"{line}\n" for line in lines[: lines.index(END)])


def has_marks(text: str) -> bool:
    """Return whether code has a line that could be taken for a mark."""
    return any(line.strip() in (BEGIN, END) for line in text.split("\n"))


def _described(failure: Failure) -> str:
    facts = (
        ("Failing test", failure.test, _TEST),
        ("Assertion", failure.assertion, _TEXT),
        ("Error", failure.error, _TEXT),
    )
    return "\n".join(f"{name}: {_cut(' '.join(text.split()), most)}" for name, text, most in facts if text)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _marked(region: Region) -> str:
    """Return the lines around the marks, as many as there is room for, and the marks."""
    above, below = whole_lines(region.before)[::-1], whole_lines(region.after)
    room = _FUNCTION - len(region.lines)
    shown: tuple[list[str], list[str]] = ([], [])
    is_open = [True, True]
    for place in range(max(len(above), len(below))):
        for side, lines in enumerate((above, below)):
            if not is_open[side] or place >= len(lines):
                continue
            line = _cut(lines[place].rstrip("\n"), _LINE) + "\n"
            room -= len(line)
            if room < 0:
                is_open[side] = False
                room += len(line)
                shown[side].append(_OMITTED)
            else:
                shown[side].append(line)
    return "".join([*shown[0][::-1], f"{BEGIN}\n", region.lines, f"{END}\n", *shown[1]]).removesuffix("\n")
