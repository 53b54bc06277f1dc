"""Write the surviving changes as SARIF 2.1.0, which code scanning services read: one result for each."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from pytest_ssr import __version__
from pytest_ssr.campaign.findings import Findings
from pytest_ssr.campaign.survivors import Survivor
from pytest_ssr.project.report_marks import SARIF_SCHEMA
from pytest_ssr.records.candidate_result import CandidateResult
from pytest_ssr.source.equivalence import Equivalence, is_proven

_FINGERPRINT = "primaryLocationLineHash"
"""The only one that GitHub compares; its form is a hash and a number."""
_UNCHANGED = ("+++", "---")


def sarif_text(findings: Findings) -> str:
    """Return the survivors as a SARIF log."""
    # In the campaign's order: the number of a fingerprint must not depend on how much a survivor matters.
    survivors = sorted(findings.survivors, key=lambda s: s.result.index)
    rules = sorted({_rule_of(survivor.result) for survivor in survivors})
    occurrences: Counter[str] = Counter()
    results = []
    for survivor in survivors:
        digest = digest_of(survivor.result)
        occurrences[digest] += 1
        fingerprint = f"{digest}:{occurrences[digest]}"
        rule = rules.index(_rule_of(survivor.result))
        results.append(_result(survivor, rule, fingerprint, findings.campaign.root))
    driver = {"name": "pytest-ssr", "version": __version__, "rules": [_rule(name) for name in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "automationDetails": {"id": "pytest-ssr/"},
        "results": results,
    }
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}) + "\n"


def survivor_message(result: CandidateResult) -> str:
    """Return one sentence about a surviving change."""
    change = f" ({result.detail})" if result.detail else ""
    name = f" in {result.scope}" if result.scope else ""
    if result.is_reached:
        return f"No test fails after the change {_rule_of(result)}{change}{name}."
    return f"No test runs this line{name}: the change {_rule_of(result)}{change} was not noticed."


def path_in_repository(root: str, path: str) -> str:
    """Return the path of a project's file from the top of its repository. root: of the project in it."""
    return str(PurePosixPath(root) / path)


def _rule_of(result: CandidateResult) -> str:
    return result.operator or result.strategy


def _rule(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "shortDescription": {"text": f"No test notices the change {name}"},
        "defaultConfiguration": {"level": "warning"},
    }


def _result(survivor: Survivor, rule: int, fingerprint: str, root: str) -> dict[str, Any]:
    result, equivalence = survivor.result, survivor.equivalence
    location = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(path_in_repository(root, result.path), errors="surrogateescape")},
            "region": {"startLine": max(1, result.line)},
        },
        "logicalLocations": [{"fullyQualifiedName": result.scope or "(module)"}],
    }
    return {
        "ruleId": _rule_of(result),
        "ruleIndex": rule,
        "level": "warning" if result.is_reached and equivalence is None else "note",
        "message": {"text": survivor_message(result)},
        "locations": [location],
        "partialFingerprints": {_FINGERPRINT: fingerprint},
        "properties": {
            "strategy": result.strategy,
            "diff": result.diff,
            **({_property_of(equivalence): str(equivalence)} if equivalence is not None else {}),
        },
    }


def _property_of(equivalence: Equivalence) -> str:
    return "equivalent" if is_proven(equivalence) else "probablyEquivalent"


def digest_of(result: CandidateResult) -> str:
    """Return a hash of a change that stays the same if its lines move within the file."""
    changed = [line for line in result.diff.splitlines() if line[:1] in ("+", "-") and line[:3] not in _UNCHANGED]
    parts = (result.path, result.scope, _rule_of(result), *changed)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
