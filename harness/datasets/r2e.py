"""Convert rows of R2E-Gym to the fields of SWE-bench.

An R2E-Gym row has the solved commit, tests in separate files in `r2e_tests`, and the expected result as a map from test
names (`Class.test`, without the file) to statuses. FAIL_TO_PASS are the tests that pass with the solution and did not
pass without it, by the logs of the row. Tests that are expected to fail are ignored.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.datasets.instance import RowError
from pytest_ssr.patch import FileEntry, make_patch

FOLDER = "r2e_tests"
_COLOUR = re.compile(r"\x1b\[\d+m")
_MARKS = {"context": " ", "added": "+", "deleted": "-", "note": "\\ "}
_OWNERS = {
    "aiohttp": "aio-libs/aiohttp",
    "bokeh": "bokeh/bokeh",
    "coveragepy": "nedbat/coveragepy",
    "datalad": "datalad/datalad",
    "mypy": "python/mypy",
    "numpy": "numpy/numpy",
    "orange3": "biolab/orange3",
    "pandas": "pandas-dev/pandas",
    "pillow": "python-pillow/Pillow",
    "pyramid": "Pylons/pyramid",
    "scrapy": "scrapy/scrapy",
    "statsmodels": "statsmodels/statsmodels",
    "sympy": "sympy/sympy",
    "tornado": "tornadoweb/tornado",
}


def is_r2e(row: Mapping[str, Any]) -> bool:
    """Return whether a row is one of R2E-Gym's."""
    return "parsed_commit_content" in row and "execution_result_content" in row


def as_swe_bench(row: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return the row with SWE-bench's fields; raises RowError naming an invalid field."""
    name, commit = _text(row, "repo_name", location), _text(row, "commit_hash", location)
    repo = name if "/" in name else _OWNERS.get(name.lower())
    if repo is None:
        raise RowError(f"{location}: repo_name {name!r} is not owner/name, nor the name of an R2E-Gym repository")
    parsed = _object(row, "parsed_commit_content", location)
    execution = _object(row, "execution_result_content", location)
    files = dict(_test_files(execution, location))
    expected = _statuses(_object(row, "expected_output_json", location))
    before = _statuses(_summary(str(execution.get("old_commit_res_stdout") or "")))
    ids = _node_ids(files, [n for n, status in expected.items() if status == "PASSED"])
    return {
        "instance_id": row.get("instance_id") or f"{repo.replace('/', '__')}-{commit[:12]}",
        "repo": repo,
        "base_commit": str(parsed.get("old_commit_hash") or f"{commit}^"),
        "patch": _solution(parsed, location),
        "test_patch": b"".join(_new_file_diff(f"{FOLDER}/{n}", x) for n, x in files.items()).decode(
            "utf-8", "surrogateescape"
        ),
        "FAIL_TO_PASS": [i for name, i in ids.items() if before.get(name) != "PASSED"],
        "PASS_TO_PASS": [i for name, i in ids.items() if before.get(name) == "PASSED"],
        "problem_statement": row.get("problem_statement") or "",
        "docker_image": row.get("docker_image") or "",
        "created_at": str(parsed.get("commit_date") or ""),
    }


def _text(row: Mapping[str, Any], field: str, location: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value:
        raise RowError(f"{location}: {field} is missing")
    return value


def _object(row: Mapping[str, Any], field: str, location: str) -> Mapping[str, Any]:
    try:
        value = json.loads(_text(row, field, location))
    except (ValueError, RecursionError) as error:
        raise RowError(f"{location}: {field} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RowError(f"{location}: {field} is not an object")
    return value


def _test_files(execution: Mapping[str, Any], location: str) -> Iterator[tuple[str, str]]:
    names, texts = execution.get("test_file_names"), execution.get("test_file_codes")
    if not isinstance(names, list) or not isinstance(texts, list) or len(names) != len(texts):
        raise RowError(f"{location}: execution_result_content needs test_file_names and as many test_file_codes")
    for name, text in zip(names, texts, strict=True):
        if not isinstance(name, str) or not isinstance(text, str) or not re.fullmatch(r"[\w-]+\.py", name):
            raise RowError(f"{location}: execution_result_content: {name!r} is not a test file")
        yield name, text


def _statuses(by_name: Mapping[str, Any]) -> dict[str, str]:
    """Return statuses by test name, without colour codes and the message after a failed test's name."""
    return {_COLOUR.sub("", name).split(" - ")[0]: str(status) for name, status in by_name.items()}


def _summary(log: str) -> dict[str, str]:
    """Return the statuses of pytest's short summary by test name, as in the row's map."""
    statuses = {}
    for line in log.partition("short test summary info")[2].splitlines():
        status, _, rest = _COLOUR.sub("", line).partition(" ")
        if status in ("PASSED", "FAILED", "ERROR") and "::" in rest:
            statuses[".".join(rest.split("::")[1:])] = status
    return statuses


def _node_ids(files: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return node ids by test name; a name that no file or several files define is left out."""
    defined: dict[str, set[str]] = {}
    for file, text in files.items():
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined.setdefault(node.name, set()).add(file)
    node_ids = {}
    for name in names:
        path, bracket, parameters = name.partition("[")
        parts = path.split(".")
        files_of_test = defined.get(parts[0], set())
        if len(files_of_test) == 1:
            node_ids[name] = "::".join([f"{FOLDER}/{next(iter(files_of_test))}", *parts]) + bracket + parameters
    return node_ids


def _solution(parsed: Mapping[str, Any], location: str) -> str:
    """Return the commit's diff of Python files that are not tests, as R2E-Gym's own reference does."""
    diffs = parsed.get("file_diffs")
    try:
        return "".join(_diff(d) for d in diffs if _is_source(d["header"]["file"]["path"])) if diffs else ""
    except (KeyError, TypeError, AttributeError) as error:
        raise RowError(f"{location}: parsed_commit_content: file_diffs: {error!r}") from None


def _diff(file_diff: Mapping[str, Any]) -> str:
    path, misc = file_diff["header"]["file"]["path"], file_diff["header"].get("misc_line")
    lines = [f"diff --git a/{path} b/{path}", *([misc] if misc else [])]
    if index := file_diff.get("index_line"):
        lines.append(f"index {index['old_commit_hash']}..{index['new_commit_hash']} {index.get('mode') or ''}".rstrip())
    if file_diff.get("minus_file") and file_diff.get("plus_file"):
        lines += [f"--- {file_diff['minus_file']['path']}", f"+++ {file_diff['plus_file']['path']}"]
    for hunk in file_diff.get("hunks") or ():
        descriptor = hunk["descriptor"]
        section = f" {descriptor['section']}" if descriptor.get("section") else ""
        lines.append(f"@@ -{_range(descriptor['old_range'])} +{_range(descriptor['new_range'])} @@{section}")
        lines += [_MARKS[line["type"]] + line["content"] for line in hunk["line_group"]["all_lines"]]
    return "".join(f"{line}\n" for line in lines)


def _range(span: Mapping[str, Any]) -> str:
    return str(span["start"]) if span.get("length") is None else f"{span['start']},{span['length']}"


def _is_source(path: str) -> bool:
    *folders, name = path.split("/")
    is_test = name.startswith("test_") or name.endswith("_test.py") or {"test", "tests", "Test", "Tests"} & {*folders}
    return name.endswith(".py") and not is_test


def _new_file_diff(path: str, text: str) -> bytes:
    return make_patch({path: (None, FileEntry(text.encode("utf-8", "surrogateescape")))}).data
