"""Read the requirements of an instance's tests from its `install_config` or its repository's metadata.

Only literal declarations are read: no code of the repository runs.
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from harness.datasets.family_table import PUBLISHED_BEFORE, family_entry
from harness.datasets.instance import Instance, InstanceError

_TEST_EXTRAS = ("test", "tests", "testing", "dev", "develop", "development")
_REQUIREMENTS_FILES = (
    *("requirements.txt", "requirements-dev.txt", "requirements-test.txt", "requirements-tests.txt"),
    *("requirements_dev.txt", "requirements_test.txt", "dev-requirements.txt", "test-requirements.txt"),
    *("requirements/dev.txt", "requirements/test.txt", "requirements/tests.txt", "requirements/testing.txt"),
)
_PIP_INSTALL = re.compile(r"(?:python3?\s+-m\s+)?(?:uv\s+)?pip3?\s+install\s+(.*)", re.DOTALL)
_OPTIONS_WITH_VALUE = ("-r", "--requirement", "-c", "--constraint")
_COMMAND = re.compile(r"""(?:[^;&\n'"]|(?<!&)&(?!&)|'[^']*'|"[^"]*"|['"])+""")
"""One command of a line: `;` and `&&` inside of quotes do not end it."""
_OLDEST_PYTHON = "3.6"
"""uv supports no older Python: environments for 3.5 get this one."""
_NAME = re.compile(r"[A-Za-z0-9]")
_COMMENT = re.compile(r"(^|\s)#.*")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an environment is built from."""

    python: str
    """A version, in the form that uv accepts."""
    pinned: tuple[str, ...] = ()
    """Packages that are installed first; the declared requirements may replace them."""
    packages: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    """Requirements files: name and content."""
    optional: tuple[str, ...] = ()
    """Packages for tests, omitted if they cannot be installed."""
    name: str = ""
    version: str = ""
    entry_points: str = ""
    """The project's entry points, in the form of `entry_points.txt`."""
    before: str = ""
    """The first day of a month; packages published on or after it are excluded."""


def recipe_of(instance: Instance, tree: Path) -> Recipe:
    """Return the recipe of an instance's environment, from its `install_config` or else its repository's own files.

    Without an `install_config`, what the family tables have for the repository is added.

    Raises InstanceError if `install_config` names a requirements file that the repository does not have, or has a
    command with unbalanced quotes.
    """
    running_python = "{}.{}".format(*sys.version_info)
    name, version, entry_points = _project_metadata(instance, tree)
    project: dict[str, Any] = {"name": name, "version": version, "entry_points": entry_points}
    if instance.install:
        python = str(instance.install.get("python") or running_python)
        return Recipe(python, **_installed(instance, tree), **project)
    packages, optional = _declared(tree)
    before = _month_after(instance.created_at)
    entry = family_entry(instance.repo, instance.version)
    if entry is not None:
        optional += _required_by_files(tree, entry.requirements)
        return Recipe(
            _buildable(entry.python) or running_python,
            _with_setuptools(entry.packages),
            packages,
            optional=optional,
            before=max(before, PUBLISHED_BEFORE),
            **project,
        )
    files = tuple((n, _text(tree / n)) for n in _REQUIREMENTS_FILES if (tree / n).is_file())
    return Recipe(
        running_python, packages=packages, files=_without_references(files), optional=optional, before=before, **project
    )


def _with_setuptools(packages: tuple[str, ...]) -> tuple[str, ...]:
    """Return packages with setuptools, which the conda environments of the family hold and older projects import."""
    return packages if any(_name(package) == "setuptools" for package in packages) else ("setuptools", *packages)


def _buildable(python: str) -> str:
    """Return a version, or the oldest that uv supports."""
    return _OLDEST_PYTHON if python and Version(python) < Version(_OLDEST_PYTHON) else python


def _required_by_files(tree: Path, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the requirements in those of the files that the repository has."""
    texts = ((path, _text(tree / path)) for path in paths if (tree / path).is_file())
    return tuple(line for _, text in _without_references(list(texts)) for line in _requirements(text))


def _month_after(date: str) -> str:
    """Return the first day of the month after a date, so that instances of one month share an environment."""
    match = re.match(r"(\d{4})-(\d\d)", date)
    if match is None:
        return ""
    year, month = int(match[1]), int(match[2])
    return f"{year + month // 12}-{month % 12 + 1:02d}-01"


def _installed(instance: Instance, tree: Path) -> dict[str, Any]:
    """Return the packages and files that the commands of an `install_config` install; other commands are ignored."""
    packages = _requirements(_listed(instance, "pip_packages"))
    files: list[tuple[str, str]] = []
    own_extras: set[str] = set()
    for command in (*_commands(instance, "install"), *_commands(instance, "pre_install")):
        match = _PIP_INSTALL.fullmatch(command.strip())
        if match is None:
            continue
        try:
            arguments = iter(shlex.split(match[1], comments=True))
        except ValueError as error:
            raise InstanceError(f"{instance.id}: install_config has {command.strip()!r}: {error}; correct it") from None
        for argument in arguments:
            if argument in _OPTIONS_WITH_VALUE:
                path = next(arguments, "")
                if argument in ("-r", "--requirement"):
                    files.append((path, _text(_path_in_tree(instance, tree, path))))
            elif argument.startswith("."):
                requirement = _parsed(f"project{argument[argument.find('[') :]}") if "[" in argument else None
                own_extras |= requirement.extras if requirement is not None else set()
            elif _NAME.match(argument):
                packages.append(argument)
    requirements_paths = (p for p in _listed(instance, "reqs_path") if p and (tree / p).is_file())
    files += [(p, _text(_path_in_tree(instance, tree, p))) for p in requirements_paths]
    declared, extras = _declared(tree, tuple(sorted(own_extras)))
    return {"packages": tuple(dict.fromkeys((*declared, *extras, *packages))), "files": _without_references(files)}


def _commands(instance: Instance, name: str) -> list[str]:
    value = instance.install.get(name) or []
    commands = [value] if isinstance(value, str) else [v for v in value if isinstance(v, str)]
    return [part for command in commands for part in _COMMAND.findall(command)]


def _listed(instance: Instance, name: str) -> list[str]:
    """Return the strings of a list in the `install_config`, which may be one string with spaces."""
    value = instance.install.get(name) or []
    return value.split() if isinstance(value, str) else [v for v in value if isinstance(v, str)]


def _path_in_tree(instance: Instance, tree: Path, path: str) -> Path:
    """Return the path of a file in the tree; raises InstanceError if it is missing or outside the tree."""
    file = (tree / path).resolve()
    if not file.is_relative_to(tree.resolve()) or not file.is_file():
        raise InstanceError(f"{instance.id}: install_config needs {path!r}, which is not a file of the repository")
    return file


def _without_references(files: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return requirements files without lines that refer to other files, URLs or the project itself."""
    results = []
    for name, text in files:
        lines = [x for x in text.splitlines() if not re.match(r"\s*(-|\.|file:|git\+|/)", x)]
        results.append((name, "\n".join(lines) + "\n"))
    return tuple(results)


def _declared(tree: Path, extras: Sequence[str] = _TEST_EXTRAS) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a project's declared dependencies, and those of its extras and dependency groups for tests."""
    data, old, literals = _toml(tree), _setup_cfg(tree), _setup_literals(tree)
    project = _table(data, "project")
    # The extras of setup.py may be conditional: `:python_version < "3"` belongs to the project itself.
    extras_of_setup = _table(literals, "extras_require")
    packages = [
        *_requirements(project.get("dependencies")),
        *_requirements(_option(old, "options", "install_requires")),
        *_requirements(literals.get("install_requires")),
        *_of_extra(extras_of_setup, ""),
    ]
    old_extras = dict(old["options.extras_require"]) if old.has_section("options.extras_require") else {}
    optional = _requirements(literals.get("tests_require"))
    for name in extras:
        for table in (_table(project, "optional-dependencies"), _table(data, "dependency-groups"), old_extras):
            optional += _of_extra(table, name)
        optional += _of_extra(extras_of_setup, name)
    # An extra of the project itself refers to dependencies that are already declared.
    own = canonicalize_name(str(project.get("name") or ""))
    optional = [p for p in optional if not own or _name(p) != own]
    return tuple(dict.fromkeys(packages)), tuple(dict.fromkeys(optional))


def _of_extra(table: Mapping[str, Any], wanted: str) -> list[str]:
    """Return the requirements of an extra, with the markers of `extra:marker`, as setuptools reads them."""
    requirements: list[str] = []
    for key, value in table.items():
        name, _, marker = str(key).partition(":")
        if canonicalize_name(name.strip()) == canonicalize_name(wanted):
            requirements += [_on_condition(text, marker) for text in _requirements(value)]
    return requirements


def _on_condition(text: str, marker: str) -> str:
    """Return a requirement that counts only if a marker is true."""
    requirement = _parsed(text)
    if not marker.strip() or requirement is None:
        return text
    try:
        both = f"({requirement.marker}) and ({marker})" if requirement.marker is not None else marker
        requirement.marker = Marker(both)
    except InvalidMarker:
        return text
    return str(requirement)


def _project_metadata(instance: Instance, tree: Path) -> tuple[str, str, str]:
    """Return the project's name, version and entry points."""
    project, old, literals = _table(_toml(tree), "project"), _setup_cfg(tree), _setup_literals(tree)
    metadata = dict(old["metadata"]) if old.has_section("metadata") else {}
    name = project.get("name") or metadata.get("name") or literals.get("name") or instance.repo.split("/")[-1]
    version = project.get("version") or metadata.get("version") or literals.get("version") or instance.version
    tables = {
        "console_scripts": _table(project, "scripts"),
        "gui_scripts": _table(project, "gui-scripts"),
        **{k: v for k, v in _table(project, "entry-points").items() if isinstance(v, Mapping)},
    }
    lines = []
    for group, entries in tables.items():
        if entries:
            lines += [f"[{group}]", *(f"{k} = {v}" for k, v in entries.items()), ""]
    for group in old["options.entry_points"] if old.has_section("options.entry_points") else ():
        lines += [f"[{group}]", *_lines(_option(old, "options.entry_points", group)), ""]
    return _valid_name(str(name), instance), _valid_version(str(version)), "\n".join(lines)


def _valid_name(name: str, instance: Instance) -> str:
    """Return a project's name; that of its repository if the name would be no name of a file."""
    try:
        canonicalize_name(name, validate=True)
    except InvalidName:
        return instance.repo.split("/")[-1]
    return name


def _valid_version(version: str) -> str:
    """Return a version; 0 for one that is computed, such as `attr: package.__version__`."""
    try:
        Version(version)
    except InvalidVersion:
        return "0"
    return version


def _toml(tree: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_text(tree / "pyproject.toml"))
    except tomllib.TOMLDecodeError:
        return {}


def _setup_cfg(tree: Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(_text(tree / "setup.cfg"))
    except configparser.Error:
        return configparser.RawConfigParser()
    return parser


def _setup_literals(tree: Path) -> Mapping[str, Any]:
    """Return the literal keyword arguments of `setup(...)` in setup.py."""
    try:
        parsed = ast.parse(_text(tree / "setup.py"))
    except (SyntaxError, ValueError, RecursionError):
        return {}
    return {name: value for call in ast.walk(parsed) if _is_setup(call) for name, value in _keywords(call)}


def _is_setup(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) == "setup"


def _keywords(call: ast.AST) -> Iterator[tuple[str, Any]]:
    assert isinstance(call, ast.Call)
    for keyword in call.keywords:
        with contextlib.suppress(ValueError, TypeError):
            yield str(keyword.arg), ast.literal_eval(keyword.value)


def _text(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        return ""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = data.get(name)
    return table if isinstance(table, Mapping) else {}


def _requirements(value: object) -> list[str]:
    """Return the requirements in a list or in lines, without comments, options and paths.

    A requirement that packaging refuses, such as `six>=1.*`, is kept: uv reads some of them.
    """
    lines = [_COMMENT.sub("", line).strip() for line in _lines(value)]
    return [line for line in lines if _parsed(line) is not None or _NAME.match(line)]


def _parsed(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _name(text: str) -> str:
    requirement = _parsed(text)
    return canonicalize_name(requirement.name) if requirement is not None else ""


def _lines(value: object) -> list[str]:
    """Return the lines of a string, or the strings of a list, that are not blank."""
    lines: Sequence[object] = ()
    if isinstance(value, str):
        lines = value.splitlines()
    elif isinstance(value, list | tuple):
        lines = value
    return [v.strip() for v in lines if isinstance(v, str) and v.strip()]


def _option(parser: configparser.RawConfigParser, section: str, name: str) -> str:
    return parser.get(section, name, fallback="") if parser.has_section(section) else ""
