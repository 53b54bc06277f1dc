"""Rows of R2E-Gym, read into the fields of SWE-bench.

Its commit is the solved one, its tests are files of their own in `r2e_tests`, and what must come out is a map from
test names (`Class.test`, without the file) to statuses. What passes with the solution and did not without it, by the
logs of the row, is FAIL_TO_PASS. Tests that are expected to fail are not asked.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.instances.instance import RowError
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
    """Tell whether a row is one of R2E-Gym's."""
    return "parsed_commit_content" in row and "execution_result_content" in row


def as_swe_bench(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the row with SWE-bench's fields; raises RowError naming the field that is wrong."""
    name, commit = _text(row, "repo_name", where), _text(row, "commit_hash", where)
    repo = name if "/" in name else _OWNERS.get(name.lower())
    if repo is None:
        raise RowError(f"{where}: repo_name {name!r} is no owner/name, and none of R2E-Gym's own")
    parsed = _object(row, "parsed_commit_content", where)
    ran = _object(row, "execution_result_content", where)
    files = dict(_test_files(ran, where))
    wanted = _statuses(_object(row, "expected_output_json", where))
    before = _statuses(_summary(str(ran.get("old_commit_res_stdout") or "")))
    ids = _ids(files, [n for n, status in wanted.items() if status == "PASSED"])
    return {
        "instance_id": row.get("instance_id") or f"{repo.replace('/', '__')}-{commit[:12]}",
        "repo": repo,
        "base_commit": str(parsed.get("old_commit_hash") or f"{commit}^"),
        "patch": _solution(parsed, where),
        "test_patch": b"".join(_new(f"{FOLDER}/{n}", x) for n, x in files.items()).decode("utf-8", "surrogateescape"),
        "FAIL_TO_PASS": [i for name, i in ids.items() if before.get(name) != "PASSED"],
        "PASS_TO_PASS": [i for name, i in ids.items() if before.get(name) == "PASSED"],
        "problem_statement": row.get("problem_statement") or "",
        "docker_image": row.get("docker_image") or "",
        "created_at": str(parsed.get("commit_date") or ""),
    }


def _text(row: Mapping[str, Any], field: str, where: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value:
        raise RowError(f"{where}: {field} is missing")
    return value


def _object(row: Mapping[str, Any], field: str, where: str) -> Mapping[str, Any]:
    try:
        found = json.loads(_text(row, field, where))
    except (ValueError, RecursionError) as error:
        raise RowError(f"{where}: {field} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise RowError(f"{where}: {field} is no object")
    return found


def _test_files(ran: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    names, texts = ran.get("test_file_names"), ran.get("test_file_codes")
    if not isinstance(names, list) or not isinstance(texts, list) or len(names) != len(texts):
        raise RowError(f"{where}: execution_result_content has no test_file_names with their test_file_codes")
    for name, text in zip(names, texts, strict=True):
        if not isinstance(name, str) or not isinstance(text, str) or not re.fullmatch(r"[\w-]+\.py", name):
            raise RowError(f"{where}: execution_result_content: {name!r} is no file of tests")
        yield name, text


def _statuses(found: Mapping[str, Any]) -> dict[str, str]:
    """Return statuses by test, without colours and without what follows a failed one's name."""
    return {_COLOUR.sub("", name).split(" - ")[0]: str(status) for name, status in found.items()}


def _summary(log: str) -> dict[str, str]:
    """Return the statuses of pytest's short summary, named as the row's map names them."""
    found = {}
    for line in log.partition("short test summary info")[2].splitlines():
        status, _, rest = _COLOUR.sub("", line).partition(" ")
        if status in ("PASSED", "FAILED", "ERROR") and "::" in rest:
            found[".".join(rest.split("::")[1:])] = status
    return found


def _ids(files: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return node ids by name; a test that several files define, or none, has none."""
    defined: dict[str, set[str]] = {}
    for file, text in files.items():
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined.setdefault(node.name, set()).add(file)
    found = {}
    for name in names:
        plain, bracket, parameters = name.partition("[")
        parts = plain.split(".")
        if len(places := defined.get(parts[0], set())) == 1:
            found[name] = "::".join([f"{FOLDER}/{next(iter(places))}", *parts]) + bracket + parameters
    return found


def _solution(parsed: Mapping[str, Any], where: str) -> str:
    """Return what the commit changes of Python files that are no tests, as R2E-Gym's own reference does."""
    diffs = parsed.get("file_diffs")
    try:
        return "".join(_diff(d) for d in diffs if _counts(d["header"]["file"]["path"])) if diffs else ""
    except (KeyError, TypeError, AttributeError) as error:
        raise RowError(f"{where}: parsed_commit_content: file_diffs: {error!r}") from None


def _diff(found: Mapping[str, Any]) -> str:
    path, misc = found["header"]["file"]["path"], found["header"].get("misc_line")
    lines = [f"diff --git a/{path} b/{path}", *([misc] if misc else [])]
    if index := found.get("index_line"):
        lines.append(f"index {index['old_commit_hash']}..{index['new_commit_hash']} {index.get('mode') or ''}".rstrip())
    if found.get("minus_file") and found.get("plus_file"):
        lines += [f"--- {found['minus_file']['path']}", f"+++ {found['plus_file']['path']}"]
    for hunk in found.get("hunks") or ():
        told = hunk["descriptor"]
        section = f" {told['section']}" if told.get("section") else ""
        lines.append(f"@@ -{_range(told['old_range'])} +{_range(told['new_range'])} @@{section}")
        lines += [_MARKS[line["type"]] + line["content"] for line in hunk["line_group"]["all_lines"]]
    return "".join(f"{line}\n" for line in lines)


def _range(found: Mapping[str, Any]) -> str:
    return str(found["start"]) if found.get("length") is None else f"{found['start']},{found['length']}"


def _counts(path: str) -> bool:
    *folders, name = path.split("/")
    test = name.startswith("test_") or name.endswith("_test.py") or {"test", "tests", "Test", "Tests"} & {*folders}
    return name.endswith(".py") and not test


def _new(path: str, text: str) -> bytes:
    return make_patch({path: (None, FileEntry(text.encode("utf-8", "surrogateescape")))}).data
