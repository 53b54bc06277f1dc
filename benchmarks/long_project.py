"""Create a synthetic project whose suite takes a given time: it sleeps and computes, over twelve modules.

Each test names its process after itself while it runs, so that the running tests are visible from outside.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

MODULES = 12
TESTS_PER_MODULE = 10
TESTS = MODULES * TESTS_PER_MODULE

_MODULE = '''
    """Part {number} of the synthetic project."""

    {imports}

    FACTOR = {factor}


    def total(values):
        """Return the sum of the values: even ones weighted, for others their place."""
        result = 0
        for place, value in enumerate(values):
            if value % 2 == 0:
                result += value * FACTOR
            else:
                result += place
        return result


    def runs(text):
        """Return the lengths of the runs of equal characters."""
        lengths = []
        last = None
        for character in text:
            if lengths and character == last:
                lengths[-1] += 1
            else:
                lengths.append(1)
            last = character
        return lengths


    def clipped(value, low, high):
        """Return the value, or the bound that it is beyond."""
        if low > high:
            raise ValueError("low is above high")
        if value < low:
            return low
        if value > high:
            return high
        return value


    class Ledger:
        """Amounts with labels."""

        def __init__(self):
            self.entries = []

        def add(self, amount, label=""):
            """Add an amount above zero and return the number of entries."""
            if amount <= 0:
                raise ValueError("an amount is above zero")
            self.entries.append((amount, label))
            return len(self.entries)

        def balance(self, label=None):
            """Return the sum of all amounts, or of those with a label."""
            return sum(amount for amount, own in self.entries if label is None or own == label)


    def combined(values):
        """Return what this part and the one before make of the values."""
        return total(values) * 2 + {before}
'''

_TESTS = """
    import pytest

    from parts.part{number:02} import Ledger, clipped, combined, runs, total


    def test_total():
        assert total([2, 3, 4, 7]) == {total}


    def test_total_of_nothing():
        assert total([]) == 0


    def test_runs():
        assert runs("aabccc") == [2, 1, 3]


    def test_runs_of_nothing():
        assert runs("") == []


    def test_clipped():
        assert [clipped(v, 2, 5) for v in (1, 2, 4, 5, 9)] == [2, 2, 4, 5, 5]


    def test_clipped_refuses():
        with pytest.raises(ValueError, match="above high"):
            clipped(1, 5, 2)


    def test_ledger():
        ledger = Ledger()
        assert [ledger.add(3), ledger.add(4, "rent")] == [1, 2]
        assert ledger.balance() == 7


    def test_ledger_by_label():
        ledger = Ledger()
        ledger.add(3, "food")
        ledger.add(4, "rent")
        assert (ledger.balance("rent"), ledger.balance("none")) == (4, 0)


    def test_ledger_refuses():
        with pytest.raises(ValueError, match="above zero"):
            Ledger().add(0)


    def test_combined():
        assert combined([2, 3, 4, 7]) == {combined}
"""

_CONFTEST = '''
    import time
    import zlib

    import pytest

    SECONDS = {seconds!r}


    def called(name):
        """Name the process, as far as the system allows it."""
        try:
            with open("/proc/self/comm", "w") as file:
                file.write(name)
        except OSError:
            pass


    def pytest_collection_modifyitems(items):
        for item in items:
            module = item.nodeid.partition("::")[0][-5:-3]
            item.user_properties.append(("seen", f"ssr-{{module}}-{{zlib.crc32(item.name.encode()) % 10**6}}"))


    @pytest.fixture(autouse=True)
    def pace(request):
        """Take as long as a test takes: every other one sleeps, the others compute."""
        name = dict(request.node.user_properties)["seen"]
        called(name)
        if zlib.crc32(name.encode()) % 2:
            time.sleep(SECONDS)
        else:
            end = time.process_time() + SECONDS
            while time.process_time() < end:
                sum(range(1000))
        yield
        called("python")
'''
SEEN_PREFIX = "ssr-"


def make_project(folder: Path, minutes: float) -> None:
    """Write the project into a new folder; its suite takes about `minutes`."""
    (folder / "parts").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "parts" / "__init__.py").touch()
    (folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\npythonpath = ["."]\n')
    (folder / "tests" / "conftest.py").write_text(dedented(_CONFTEST).format(seconds=minutes * 60 / TESTS))
    for number in range(MODULES):
        factor = number + 2
        imports = f"from parts.part{number - 1:02} import total as total_before" if number else "import math"
        code = "total_before(values[1:])" if number else "math.gcd(12, 18)"
        module = dedented(_MODULE).format(number=number, factor=factor, imports=imports, before=code)
        (folder / "parts" / f"part{number:02}.py").write_text(module)
        # Of [2, 3, 4, 7]: two even values, and the indices 1 and 3; without the first, 4 and the indices 0 and 2.
        total = 6 * factor + 4
        before = 4 * (factor - 1) + 2 if number else 6
        tests = dedented(_TESTS).format(number=number, total=total, combined=total * 2 + before)
        (folder / "tests" / f"test_part{number:02}.py").write_text(tests)


def dedented(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")
