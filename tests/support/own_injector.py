"""The beginning of a conftest.py or a plugin that adds an injector of its own; it changes `calc.py`."""

OWN_INJECTOR = """\
from pytest_ssr.checks import Finding
from pytest_ssr.injectors.protocol import Candidate


class Own:
    name = "own"

    def candidates(self, tree, *, seed):
        text = tree.read("calc.py")
        yield Candidate("mutation", "own-change", {"calc.py": text.replace(b"a + b", b"a - b")}, "calc.py", 6, "add")


def pytest_ssr_injectors(config):
    return {"own": Own()}
"""
