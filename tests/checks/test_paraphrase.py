"""A paraphrase has a different text and the same behaviour."""

from __future__ import annotations

import ast
import fractions
import string
import textwrap

import pytest

from pytest_ssr.checks.bug_validity import paraphrase

CODE = '''
"""Said."""

def deco(function): return function

class A:
    @ deco
    def one(self, result_0 = 1, *rest):  # kept
        if result_0 > 2:
            return -result_0 if rest else f"{result_0 + 1 :>{len(rest) + 3}} + {rest = }"
        return

    def two(self): return [x for x in (lambda y: (yield y))(3)]

async def three(a):
    return """
 + b""" + await a
'''


def test_a_paraphrase_differs_in_text_and_not_in_behaviour() -> None:
    paraphrased = paraphrase(CODE.encode())
    assert paraphrased is not None
    text = paraphrased.decode()
    assert "return -result_0" not in text
    assert "kept" not in text
    assert paraphrase(CODE.encode()) != paraphrased
    namespace: dict[str, object] = {}
    exec(text, namespace)
    assert namespace["A"]().one(5) == "  6 + rest = ()"  # type: ignore[operator]
    assert namespace["A"]().one(5, 1) == -5  # type: ignore[operator]
    assert list(namespace["A"]().two()) == [3]  # type: ignore[operator]
    assert paraphrase(b"def (") is None


@pytest.mark.parametrize("module", [ast, fractions, string, textwrap])
def test_whole_modules_behave_as_before(module: object) -> None:
    with open(module.__file__, "rb") as file:  # type: ignore[attr-defined] # it has one
        data = file.read()
    text = paraphrase(data)
    assert text is not None
    before, after = {"__name__": "one"}, {"__name__": "one"}
    for source, names in ((data, before), (text, after)):
        exec(compile(source, module.__name__, "exec"), names)  # type: ignore[attr-defined] # it has one
    assert before.keys() == after.keys()
