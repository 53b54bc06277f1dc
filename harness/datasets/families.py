"""Convert dataset rows to instances: SWE-bench and its relatives, SWE-smith, SWE-Gym, SWE-rebench and R2E-Gym.

`_COLUMNS` has the names of each column in these datasets; `text_list` has the encodings of lists of tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from harness.datasets import published, r2e
from harness.datasets.columns import Columns, find_column, missing_column, text_list
from harness.datasets.instance import Instance, RowError
from harness.datasets.languages import OtherLanguageError, other_language
from harness.datasets.row_command import has_known_command
from harness.diffs import read_row_diff
from harness.storage.atomic_write import lone_surrogate
from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import Patch

_ROOT = re.compile(r"(?:\./|/testbed/|/app/|/workspace/[\w.-]+/|/home/[\w.-]+/)+(?=[^:]*\.py::)")
"""The folder of the repository in node ids: the working folder, or that of a family's images."""


def plain_id(name: str) -> str:
    """Return an id without blanks around it, and a node id without the folder of the repository before its path."""
    name = name.strip()
    root = _ROOT.match(name)
    return name[root.end() :] if root is not None else name


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_MAX_ID = 200
"""Characters of an id; files that are named after it have suffixes."""
_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_MIRROR = re.compile(r"swesmith/(.+?)__(.+)\.([0-9a-f]{7,40})")
"""SWE-smith's repositories: owner, name and commit of the repository that they mirror."""
_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}\^?")
_ARTIFACT = re.compile(r"[0-9a-f]{20,64}")
_COMMANDS = ("pre_install", "install", "pip_packages", "test_cmd")
"""Fields of `install_config`."""
_COLUMNS: Columns = {
    "instance_id": ("instance_id", "task_id", "id"),
    "repo": ("repo", "repository", "repo_full_name"),
    "base_commit": ("base_commit", "base.sha", "base_sha"),
    "patch": ("patch", "fix_patch", "gold_patch", "golden_patch"),
    "test_patch": ("test_patch", "tests_patch"),
    "FAIL_TO_PASS": ("FAIL_TO_PASS", "F2P", "fixed_tests", "f2p_tests", "failing_tests"),
    "PASS_TO_PASS": ("PASS_TO_PASS", "P2P", "p2p_tests", "passing_tests"),
    "problem_statement": ("problem_statement", "resolved_issues"),
    "version": ("version",),
    "image": ("image_name", "docker_image", "image"),
    "install_config": ("install_config",),
    "log_parser": ("log_parser",),
    "eval_script": ("eval_script",),
    "test_command": ("test_command",),
    "created_at": ("created_at",),
    "license": ("license_name", "license"),
    "artifact_id": ("artifact_id",),
}
"""The names of each column in the datasets that are read; case does not matter."""
_TESTS = ("FAIL_TO_PASS", "PASS_TO_PASS")
_REQUIRED = ("instance_id", "repo", "patch", "FAIL_TO_PASS")


def read_row(row: Mapping[str, Any], location: str) -> Instance:
    """Return a row of any family as an instance; raises RowError, naming `location` and the field, if it is invalid.

    Raises OtherLanguageError for a row of another language whose tests nothing here can run.
    """
    given, source = _unwrapped(row), _data_source(row)
    row = _canonical(given, location)
    family = _family(given, row)
    if {family, source} == {"swe-bench", "swe-gym"}:
        # The prompts of both have lists of tests and all columns, so that only their source distinguishes them.
        family = source
    for column in (*_REQUIRED, *(() if family == "swe-smith" else ("base_commit",))):
        if column not in row:
            raise RowError(f"{location} has no {column}: {missing_column(given, _COLUMNS[column])}")
    name = _valid_id(_text(row, "instance_id", location), location)
    location = f"{location}: {name}"
    patch = _patch(row, "patch", location)
    if not patch.files:
        raise RowError(f"{location}: patch is empty, so there is no reference solution")
    repo, commit = _valid_repo(_text(row, "repo", location), location), _text(row, "base_commit", location)
    if mirror := _MIRROR.fullmatch(repo):
        repo, commit = f"{mirror[1]}/{mirror[2]}", commit or mirror[3]
    if commit and not _COMMIT.fullmatch(commit):
        raise RowError(f"{location}: base_commit {commit!r} is not a commit")
    ids = {column: _ids(row, column, location) for column in _TESTS}
    instance = Instance(
        id=name,
        repo=repo,
        base_commit=commit,
        # SWE-smith's patch adds the bug; its reverse is the solution.
        patch=patch.reverse() if family == "swe-smith" else patch,
        test_patch=_patch(row, "test_patch", location),
        fail_to_pass=tuple(ids["FAIL_TO_PASS"]),
        pass_to_pass=tuple(ids["PASS_TO_PASS"]),
        given_ids={plain: given for column in _TESTS for plain, given in ids[column].items() if plain != given},
        statement=_statement(row, location),
        family=family,
        begins_solved=family == "swe-smith",
        version=_text(row, "version", location),
        named_image=_text(row, "image", location),
        install=_install(row, location),
        log_parser=_text(row, "log_parser", location),
        eval_script=_text(row, "eval_script", location),
        created_at=str(row.get("created_at") or ""),
        licence=str(row.get("license") or ""),
        artifact_id=found[0] if (found := _ARTIFACT.fullmatch(str(row.get("artifact_id")))) else "",
        row=given,
        data_source=source or family,
    )
    paths = (*instance.patch.paths, *instance.test_patch.paths)
    language = other_language(given, paths, (*instance.fail_to_pass, *instance.pass_to_pass))
    if language and not has_known_command(instance):
        raise OtherLanguageError(location, language)
    return instance


def _unwrapped(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row that a prompt of OpenClaw-RL's swe-rl holds, or the row itself."""
    metadata = row.get("metadata")
    instance = metadata.get("instance") if isinstance(metadata, Mapping) else None
    return instance if isinstance(instance, Mapping) else row


def _data_source(row: Mapping[str, Any]) -> str:
    """Return the source that a prompt of OpenClaw-RL's swe-rl names; empty if it names none, and for another row."""
    source = row["metadata"].get("data_source") if _unwrapped(row) is not row else ""
    return source if isinstance(source, str) else ""


def _canonical(given: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return a row's values by SWE-bench's names; columns that it does not have are missing."""
    if r2e.is_r2e(given):
        given = r2e.as_swe_bench(given, location)
    row = {name: found[1] for name, names in _COLUMNS.items() if (found := find_column(given, names)) is not None}
    if published.is_pro(given):
        row |= published.pro_columns(given)
    if published.is_live(given):
        row |= published.live_columns(given, location)
    if type(row.get("version")) is int:
        # SWE-bench Extra counts the versions of a repository.
        row["version"] = str(row["version"])
    owner, number = given.get("org"), given.get("number")
    if isinstance(owner, str) and isinstance(row.get("repo"), str):
        # Multi-SWE-bench keeps the two halves of a repository's name, and the number of a pull request.
        name = row["repo"]
        row["repo"] = name if "/" in name else f"{owner}/{name}"
        row.setdefault("instance_id", f"{owner}__{name.rpartition('/')[2]}-{number}")
    if isinstance(row.get("instance_id"), str):
        row["instance_id"] = row["instance_id"].strip()
    if "test_command" in row and row.get("artifact_id"):
        # Rows that `ssr export` makes: their script and its parser are for swebench, and grade by a log.
        row |= {"eval_script": row["test_command"], "log_parser": ""}
    return row


def invalid_row(row: Mapping[str, Any], location: str, error: RowError, taken: Collection[str] = ()) -> Instance:
    """Return an instance for a row that cannot be read, named by the row's id, or else by its location.

    taken: ids of other rows.
    """
    row = _unwrapped(row)
    try:
        known = _canonical(row, location)
    except RowError:
        known = dict(row)
    name, repo = known.get("instance_id"), known.get("repo")
    if not isinstance(name, str) or not _is_id(name) or name in taken:
        name = _name_by_location(location, taken)
    if not isinstance(repo, str) or not _REPO.fullmatch(repo):
        repo = ""
    return Instance(name, repo, "", Patch(), Patch(), (), (), invalid=str(error), invalid_code=error.code)


def _name_by_location(location: str, taken: Collection[str]) -> str:
    """Return a name made of the end of a location: as much of it as no other row has."""
    parts = location.split("/")
    ends = ("-".join(parts[-count:]) for count in range(1, len(parts) + 1))
    names = [re.sub(r"[^A-Za-z0-9._+-]+", "-", end).lstrip("._+-") for end in ends]
    return next((name for name in names if name and name not in taken), names[-1])


def row_of(instance: Instance) -> dict[str, Any]:
    """Return an instance as a row that `read_row` accepts: SWE-smith's if it begins solved, else SWE-bench's."""
    owner, name = instance.repo.split("/")
    solution = instance.patch.reverse() if instance.begins_solved else instance.patch
    row = {
        "instance_id": instance.id,
        "repo": instance.repo,
        "base_commit": instance.base_commit,
        "patch": solution.data.decode("utf-8", "surrogateescape"),
        "test_patch": instance.test_patch.data.decode("utf-8", "surrogateescape"),
        "problem_statement": instance.statement,
        "created_at": instance.created_at,
        "version": instance.version,
        "FAIL_TO_PASS": json.dumps(instance.fail_to_pass),
        "PASS_TO_PASS": json.dumps(instance.pass_to_pass),
        "image_name": instance.image,
    }
    if instance.begins_solved:
        row |= {"repo": f"swesmith/{owner}__{name}.{instance.base_commit}"}
    optional = {"install_config": dict(instance.install), "log_parser": instance.log_parser}
    optional |= {"eval_script": instance.eval_script, "license": instance.licence}
    optional |= {"artifact_id": instance.artifact_id}
    return row | {k: v for k, v in optional.items() if v}


def _family(given: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    if r2e.is_r2e(given):
        return "r2e-gym"
    if str(row.get("repo", "")).startswith("swesmith/") or not (row.get("base_commit") or row.get("test_patch")):
        return "swe-smith"
    if published.is_pro(given):
        return "swe-bench-pro"
    if published.is_live(given):
        return "swe-bench-live"
    if row.get("install_config"):
        return "swe-rebench-v2" if "language" in given else "swe-rebench"
    if isinstance(given.get("meta"), Mapping) and "is_lite" in given["meta"]:
        return "swe-bench-extra"
    if "test_patch" in row and isinstance(row.get("FAIL_TO_PASS"), list) and "hints_text" in given:
        return "swe-gym"
    return "swe-bench"


def _is_id(name: str) -> bool:
    return len(name) <= _MAX_ID and bool(_NAME.fullmatch(name))


def _valid_id(name: str, location: str) -> str:
    if not _is_id(name):
        raise RowError(f"{location}: instance_id {name[:80]!r} cannot name a folder")
    return name


def _valid_repo(repo: str, location: str) -> str:
    if not _REPO.fullmatch(repo) or ".." in repo:
        raise RowError(f"{location}: repo {repo!r} is not owner/name")
    return repo


def _text(row: Mapping[str, Any], field: str, location: str) -> str:
    value = row.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RowError(f"{location}: {field} is {type(value).__name__}, not text")
    if half := lone_surrogate(value):
        raise RowError(f"{location}: {field} holds {half}, which is half a character")
    return value


def _patch(row: Mapping[str, Any], field: str, location: str) -> Patch:
    try:
        return read_row_diff(_text(row, field, location).encode("utf-8", "surrogateescape"))
    except ArtifactError as error:
        raise RowError(f"{location}: {field}: {error}") from None


def _ids(row: Mapping[str, Any], field: str, location: str) -> dict[str, str]:
    """Return the ids of tests, each with the form in which the row gives it."""
    try:
        given = text_list(row.get(field))
    except ValueError as error:
        raise RowError(f"{location}: {field} {error}") from None
    return dict(reversed([(plain_id(name), name) for name in reversed(given) if name.strip()]))


def _statement(row: Mapping[str, Any], location: str) -> str:
    """Return the task in prose: a text, or the titles and texts of several issues."""
    value = row.get("problem_statement")
    if not isinstance(value, Sequence) or isinstance(value, str):
        return _text(row, "problem_statement", location)
    issues = [issue for issue in value if isinstance(issue, Mapping)]
    texts = [str(issue.get(key) or "") for issue in issues for key in ("title", "body")]
    return _text({"problem_statement": "\n\n".join(filter(None, texts))}, "problem_statement", location)


def _install(row: Mapping[str, Any], location: str) -> Mapping[str, Any]:
    install = row.get("install_config") or {}
    if isinstance(install, str):
        install = _json(install, "install_config", location)
    if not isinstance(install, Mapping):
        raise RowError(f"{location}: install_config is {type(install).__name__}, not an object")
    for field in _COMMANDS:
        value = install.get(field) or ()
        if not isinstance(value, str | Sequence) or not all(isinstance(v, str) for v in value):
            raise RowError(f"{location}: install_config: {field} is neither text nor a list of texts")
    return install


def _json(text: str, field: str, location: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RowError(f"{location}: {field} is not JSON: {error}") from None
