"""Dockerfiles are read as far as they can be followed line by line, and refused beyond that."""

from __future__ import annotations

import pytest

from harness.containers.dockerfile import (
    Copy,
    DockerfileError,
    Fault,
    MakeFolder,
    Run,
    base_image,
    expanded,
    steps_of,
)
from harness.containers.registry import ImageSettings

BASE = ImageSettings(env={"PATH": "/bin"}, workdir="/base", user="root")


def test_instructions_become_steps_with_the_settings_that_hold_for_them() -> None:
    text = (
        "ARG VERSION=3.12\nFROM python:${VERSION}-slim AS base\n# a comment\nARG NAME=shop\n"
        'ENV TITLE="$NAME is open" EMPTY=\nENV OLD its value\nWORKDIR /srv\nWORKDIR sub\nUSER app\n'
        'RUN a && \\\n  # between the lines\n  b\nRUN ["c", "d e"]\nCMD ignored\n'
        "COPY --chown=app:app --chmod=0644 x y /there/\nADD z.tar.gz .\n"
    )
    assert base_image(text) == "python:3.12-slim"
    steps, settings = steps_of(text, BASE)
    env = {"PATH": "/bin", "TITLE": "shop is open", "EMPTY": "", "OLD": "its value"}
    assert settings == ImageSettings(env=env, workdir="/srv/sub", user="app")
    folder, below, shell, direct, copy, add = steps
    assert isinstance(folder, MakeFolder)
    assert isinstance(below, MakeFolder)
    assert [folder.path, below.path] == ["/srv", "/srv/sub"]
    assert isinstance(shell, Run)
    assert isinstance(direct, Run)
    assert shell.argv == ("/bin/sh", "-c", "a &&   b")
    assert shell.settings == ImageSettings(env={"NAME": "shop", **env}, workdir="/srv/sub", user="app")
    assert direct.argv == ("c", "d e")
    assert isinstance(copy, Copy)
    assert (copy.sources, copy.target, copy.is_folder) == (("x", "y"), "/there", True)
    assert (copy.owner, copy.mode, copy.unpacks) == ("app:app", 0o644, False)
    assert isinstance(add, Copy)
    assert (add.target, add.is_folder, add.unpacks) == ("/srv/sub", True, True)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("FROM other", Fault.STAGES),
        ("COPY --from=other a b", Fault.STAGES),
        ("RUN --mount=type=cache,target=/x true", Fault.FLAG),
        ("COPY --parents a b", Fault.FLAG),
        ("ADD https://example.org/a b", Fault.URL),
        ("RUN <<EOF", Fault.HEREDOC),
        ("ONBUILD RUN true", Fault.INSTRUCTION),
        ("COPY a", Fault.SYNTAX),
        ("ENV NAME", Fault.SYNTAX),
        ('RUN ["a", 1]', Fault.SYNTAX),
    ],
)
def test_what_cannot_be_followed_is_refused(line: str, fault: Fault) -> None:
    with pytest.raises(DockerfileError) as caught:
        steps_of(f"FROM python\n{line}\n", BASE)
    assert caught.value.code is fault


@pytest.mark.parametrize("text", ["", "RUN true\n", "FROM\n"])
def test_a_dockerfile_begins_with_an_image(text: str) -> None:
    with pytest.raises(DockerfileError) as caught:
        base_image(text)
    assert caught.value.code is Fault.SYNTAX


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$A-${A}", "1-1"),
        ("${B:-other}${B:-$A}", "other1"),
        ("${A:+set}${B:+set}", "set"),
        (r"\$A $missing", "$A "),
    ],
)
def test_variables_are_replaced(text: str, value: str) -> None:
    assert expanded(text, {"A": "1", "B": ""}) == value
