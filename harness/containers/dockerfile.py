"""Read Dockerfiles that can be followed line by line, without a builder: one stage, files of the context, commands."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import PurePosixPath

from harness.containers.registry import ImageSettings
from pytest_ssr.errors import SsrError


class Fault(StrEnum):
    """Why a line of a Dockerfile cannot be followed."""

    INSTRUCTION = "instruction"
    FLAG = "flag"
    STAGES = "stages"
    URL = "url"
    HEREDOC = "heredoc"
    SYNTAX = "syntax"
    SOURCE = "source"
    IGNORE_FILE = "ignore-file"
    TRIGGERS = "triggers"
    COMMAND = "command"


class DockerfileError(SsrError):
    """A Dockerfile cannot be followed line by line."""

    def __init__(self, code: Fault, line: str, detail: str = "") -> None:
        what = {
            Fault.COMMAND: "this line of the Dockerfile fails",
            Fault.SOURCE: "this line of the Dockerfile names files that its folder does not have",
            Fault.IGNORE_FILE: "the Dockerfile cannot be followed without Docker, because of",
        }.get(code, f"this line of the Dockerfile cannot be followed without Docker ({code})")
        super().__init__(f"{what}: {line[:200]}{detail and f'; {detail}'}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Run:
    """A command, with the settings that hold for it."""

    argv: tuple[str, ...]
    settings: ImageSettings
    text: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Files of the context; `unpacks` if archives among them are unpacked, as ADD does."""

    sources: tuple[str, ...]
    target: str
    is_folder: bool
    owner: str
    mode: int | None
    unpacks: bool
    text: str


@dataclass(frozen=True, slots=True)
class MakeFolder:
    """A working directory, which is created."""

    path: str
    text: str


Step = Run | Copy | MakeFolder

_WITHOUT_EFFECT = ("CMD", "EXPOSE", "LABEL", "MAINTAINER", "HEALTHCHECK", "STOPSIGNAL", "VOLUME")
_VARIABLE = re.compile(r"\\(.)|\$(?:\{(\w+)(?::([-+])((?:[^{}]|\{[^}]*\})*))?\}|(\w+))")


def base_image(text: str) -> str:
    """Return the image that the Dockerfile begins with; raises DockerfileError."""
    lines = list(_lines(text))
    arguments: dict[str, str] = {}
    image = ""
    for name, value, line in lines:
        if name == "FROM":
            if image:
                raise DockerfileError(Fault.STAGES, line)
            words = value.split()
            if words and words[0].startswith("--"):
                raise DockerfileError(Fault.FLAG, line)
            if not words or len(words) not in (1, 3):
                raise DockerfileError(Fault.SYNTAX, line)
            image = expanded(words[0], arguments)
        elif name == "ARG" and not image:
            arguments |= _arguments(value, arguments, {})
        elif not image:
            raise DockerfileError(Fault.SYNTAX, line)
    if not image:
        raise DockerfileError(Fault.SYNTAX, "FROM is missing")
    return image


def steps_of(text: str, base: ImageSettings) -> tuple[list[Step], ImageSettings]:
    """Return what builds the image, in order, and the settings of the result. base: the settings of its base.

    Raises DockerfileError.
    """
    base_image(text)
    settings, steps = base, list[Step]()
    first, arguments, shell = dict[str, str](), dict[str, str](), ["/bin/sh", "-c"]
    is_begun = False
    for name, value, line in _lines(text):
        known = {**arguments, **settings.env}
        match name:
            case "FROM":
                is_begun = True
            case "ARG" if not is_begun:
                first |= _arguments(value, first, {})
            case "ARG":
                arguments |= _arguments(value, known, first)
            case "ENV":
                settings = replace(settings, env={**settings.env, **_pairs(value, known, line)})
            case "WORKDIR":
                path = PurePosixPath(settings.workdir, expanded(_unquoted(value), known))
                settings = replace(settings, workdir=str(path))
                steps.append(MakeFolder(str(path), line))
            case "USER":
                settings = replace(settings, user=expanded(_unquoted(value), known))
            case "SHELL":
                shell = _words(value, line)
            case "ENTRYPOINT":
                argv = _words(value, line) if value.startswith("[") else [*shell, value]
                settings = replace(settings, entrypoint=tuple(argv))
            case "RUN":
                if value.startswith("--"):
                    raise DockerfileError(Fault.FLAG, line)
                argv = _words(value, line) if value.startswith("[") else [*shell, value]
                # Arguments are variables of commands, but not of the image.
                steps.append(Run(tuple(argv), replace(settings, env=known), line))
            case "COPY" | "ADD":
                steps.append(_copy(name, value, known, settings.workdir, line))
            case _ if name not in _WITHOUT_EFFECT:
                raise DockerfileError(Fault.INSTRUCTION, line)
    return steps, settings


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}` replaced."""

    def value(found: re.Match[str]) -> str:
        escaped, braced, sign, other, bare = found.groups()
        if escaped is not None:
            return str(escaped if escaped == "$" else found[0])
        current = variables.get(braced or bare, "")
        if sign == "-":
            return current or expanded(other, variables)
        if sign == "+":
            return expanded(other, variables) if current else ""
        return current

    return _VARIABLE.sub(value, text)


def _lines(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield each instruction with its value and its text; a backslash at the end continues a line."""
    if re.match(r"#\s*escape\s*=\s*`", text, re.IGNORECASE):
        raise DockerfileError(Fault.SYNTAX, text.splitlines()[0])
    parts: list[str] = []
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for number, line in enumerate(lines, 1):
        is_continued = line.rstrip().endswith("\\")
        parts.append(line.rstrip()[:-1] if is_continued else line)
        if is_continued and number < len(lines):
            continue
        whole = "".join(parts).strip()
        parts.clear()
        name, *rest = whole.split(None, 1)
        value = rest[0] if rest else ""
        if name.upper() in ("RUN", "COPY", "ADD") and re.search(r"<<-?[\"']?[A-Za-z_]", value):
            raise DockerfileError(Fault.HEREDOC, whole)
        yield name.upper(), value, whole


def _words(value: str, line: str) -> list[str]:
    """Return the strings of a JSON array."""
    try:
        words = json.loads(value)
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise DockerfileError(Fault.SYNTAX, line)
    return words


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _pairs(value: str, known: Mapping[str, str], line: str) -> dict[str, str]:
    """Return the variables of ENV, in its form with equals signs or the old one, a name and its value."""
    first = value.split(None, 1)
    if "=" not in first[0]:
        if len(first) != 2:
            raise DockerfileError(Fault.SYNTAX, line)
        return {first[0]: expanded(first[1], known)}
    try:
        words = shlex.split(value, posix=True)
    except ValueError:
        raise DockerfileError(Fault.SYNTAX, line) from None
    pairs = [word.partition("=") for word in words]
    if not all(sign for _, sign, _ in pairs):
        raise DockerfileError(Fault.SYNTAX, line)
    return {name: expanded(text, known) for name, _, text in pairs}


def _arguments(value: str, known: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments that a line declares and that have a value. inherited: those before FROM."""
    found = {}
    for word in shlex.split(value):
        name, sign, default = word.partition("=")
        if sign:
            found[name] = expanded(default, known)
        elif name in inherited:
            found[name] = inherited[name]
    return found


def _copy(name: str, value: str, known: Mapping[str, str], workdir: str, line: str) -> Copy:
    owner, mode = "root", None
    while value.startswith("--"):
        flag, _, value = value.partition(" ")
        key, _, given = flag.partition("=")
        value = value.lstrip()
        if key == "--chown":
            owner = expanded(given, known)
        elif key == "--chmod" and re.fullmatch(r"[0-7]{3,4}", given):
            mode = int(given, 8)
        elif key != "--link":
            raise DockerfileError(Fault.STAGES if key == "--from" else Fault.FLAG, line)
    words = _words(value, line) if value.startswith("[") else value.split()
    if len(words) < 2:
        raise DockerfileError(Fault.SYNTAX, line)
    *sources, target = (expanded(word, known) for word in words)
    if any(re.match(r"\w+://|git@", source) for source in sources):
        raise DockerfileError(Fault.URL, line)
    is_folder = target.endswith("/") or len(sources) > 1 or target in (".", "..")
    return Copy(tuple(sources), str(PurePosixPath(workdir, target)), is_folder, owner, mode, name == "ADD", line)
