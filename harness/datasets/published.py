"""Convert rows of SWE-bench Pro and SWE-bench-Live to the fields of SWE-bench.

Both keep facts in columns of their own that SWE-bench has no name for: the image, the statement, the test commands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from harness.datasets.columns import text_list
from harness.datasets.instance import RowError

_PARSER_NAME = re.compile(r"[\w/.-]+")
_PRO_PARTS = (("Requirements", "requirements"), ("New interfaces introduced", "interface"))


def is_pro(row: Mapping[str, Any]) -> bool:
    """Return whether a row is one of SWE-bench Pro."""
    return "dockerhub_tag" in row and "selected_test_files_to_run" in row


def pro_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row of SWE-bench Pro that its columns do not hold under names of SWE-bench.

    Solvers get the statement with its requirements and interface, as from the dataset's own harness; tests rely on
    names in them. The scripts that run other tests than pytest's are not in the rows.
    """
    fields: dict[str, Any] = {}
    if _is_text(tag := row["dockerhub_tag"]):
        fields["image"] = f"jefzda/sweap-images:{tag}"
    if _is_text(statement := row.get("problem_statement")):
        parts = [f"{title}:\n{row[name]}" for title, name in _PRO_PARTS if _is_text(row.get(name))]
        fields["problem_statement"] = "\n\n".join([statement, *parts])
    return fields


def is_live(row: Mapping[str, Any]) -> bool:
    """Return whether a row is one of SWE-bench-Live."""
    return "test_cmds" in row and ("log_parser" in row or "parser" in row)


def live_columns(row: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return the fields of a row of SWE-bench-Live that its columns do not hold under names of SWE-bench.

    The parsers of some rows are programs; these are not run. Raises RowError for an invalid field.
    """
    commands: list[str] = []
    for name in ("rebuild_cmds", "test_cmds", "print_cmds"):
        try:
            commands += text_list(row.get(name))
        except ValueError as error:
            raise RowError(f"{location}: {name} {error}") from None
    parser = str(row.get("log_parser") or row.get("parser") or "").strip()
    if parser.lower() == "pytest":
        parser = "parse_log_pytest"
    image = f"starryzhang/sweb.eval.x86_64.{str(row.get('instance_id', '')).replace('__', '_1776_').lower()}"
    return {
        "image": row.get("docker_image") or image,
        "eval_script": "\n".join(commands),
        "log_parser": parser if _PARSER_NAME.fullmatch(parser) else "",
    }


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())
