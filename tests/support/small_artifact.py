"""A well-formed artifact, whose bug nobody has validated."""

from pytest_ssr.patch import Patch
from pytest_ssr.records.artifact import BugArtifact

ARTIFACT = BugArtifact(
    b"#!/bin/sh\n",
    ("tests/test_a.py",),
    b"import json\n",
    Patch.parse(b"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"),
    Patch.parse(b"diff --git a/tests/test_a.py b/tests/test_a.py\n--- a/tests/test_a.py\n+++ b/tests/test_a.py\n"
                b"@@ -1 +0,0 @@\n-assert 1\n"),
    {"schema_version": 1, "repository": "p", "injector": {"strategy": "mutation", "operator": "o"}, "FAIL_TO_PASS": ["t"]},
)  # fmt: skip
