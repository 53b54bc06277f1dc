"""The prompt of a model that writes repairs keeps every line as it is, and its reply is read back exactly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.solvers.writer.prompt import BEGIN, END, Failure, has_marks, lines_of, question, reply
from harness.solvers.writer.proposals import Outcome, outcome_of
from harness.solvers.writer.regions import MOST_LINES, MOST_STATEMENTS, Region, is_indented, regions_of

FUNCTION = '''\
    @cached
    def f(self, a):
        """Return it.

        >>> f(1)
        """
        if (
            a
        ):
            b = 1  # One.

            return b
        return None
'''
line = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=40).filter(lambda t: not has_marks(t))
block = st.lists(line, max_size=8).map(lambda lines: "".join(f"{each}\n" for each in lines))
long_block = st.lists(line, max_size=300).map(lambda lines: "".join(f"{each}\n" for each in lines))


@given(block)
def test_a_reply_is_read_back_as_it_was_written(lines: str) -> None:
    assert lines_of(reply(lines)) == lines
    assert lines_of(f"{reply(lines)}\n") == lines


@given(block)
def test_a_reply_that_was_cut_off_has_no_lines(lines: str) -> None:
    assert lines_of(reply(lines).removesuffix(END)) is None
    assert lines_of(reply(lines).removeprefix(BEGIN)) is None


@given(long_block, block, long_block, st.none() | st.builds(Failure, line, st.text(), st.text(max_size=2000)))
def test_a_prompt_has_the_region_between_its_marks_and_is_bounded(
    before: str, lines: str, after: str, failure: Failure | None
) -> None:
    [message] = question(Region(before, lines, after, 1), failure)
    shown = message["content"].split("\n")
    begin, end = shown.index(BEGIN), len(shown) - 1 - shown[::-1].index(END)
    assert "".join(f"{each}\n" for each in shown[begin + 1 : end]) == lines
    assert len(message["content"]) < 2700
    if len(before) + len(lines) + len(after) < 1600:
        assert shown[begin - before.count("\n") : begin] == before.split("\n")[:-1]
        assert shown[end + 1 :] == after.split("\n")[:-1]


def test_a_prompt_tells_what_is_known_of_the_failing_test() -> None:
    failure = Failure("tests/test_f.py::test_f", "assert f(1) == 2", "AssertionError:\n  1 != 2" + "x" * 1000)
    [with_it] = question(regions_of(FUNCTION)[0], failure)
    [without] = question(regions_of(FUNCTION)[0])
    told = with_it["content"].split("\n\n")[1].split("\n")
    assert [text.partition(": ")[2][:20] for text in told] == [
        failure.test[:20],
        failure.assertion,
        "AssertionError: 1 !="[:20],
    ]
    assert len(with_it["content"]) - len(without["content"]) < 400
    assert failure.test not in without["content"]


def test_the_nearest_lines_of_a_long_function_are_shown() -> None:
    numbers = [f"    x = {n}\n" for n in range(400)]
    region = Region("def f():\n" + "".join(numbers[:200]), "    return x\n", "".join(numbers[200:]), 1)
    shown = question(region)[0]["content"]
    assert "x = 199\n" in shown
    assert "x = 200\n" in shown
    assert "x = 100\n" not in shown
    assert shown.count("# ...") == 2


def test_regions_are_up_to_three_statements_without_a_docstring() -> None:
    regions = regions_of(FUNCTION)
    assert [(r.first, r.last) for r in regions if r.statements == 1] == [
        (1, 1),
        (2, 2),
        (7, 9),
        (10, 10),
        (12, 12),
        (13, 13),
    ]
    assert max(r.statements for r in regions) == MOST_STATEMENTS
    assert all(r.with_lines(r.lines) == FUNCTION for r in regions)
    assert all(r.lines.count("\n") <= MOST_LINES for r in regions)
    assert not any("Return it" in r.lines for r in regions)


def test_a_region_knows_its_lines_in_another_version() -> None:
    region = next(r for r in regions_of(FUNCTION) if (r.first, r.last) == (10, 10))
    fixed = FUNCTION.replace("            b = 1  # One.\n", "            b = 2\n            b += 1\n")
    assert region.original_lines(fixed) == "            b = 2\n            b += 1\n"
    assert region.original_lines(fixed.replace("None", "a")) is None
    assert region.original_lines(FUNCTION.replace("            b = 1  # One.\n", "")) == ""


def test_code_that_is_not_python_has_no_regions() -> None:
    assert regions_of('def f():\n    """\n') == []


def test_a_form_feed_before_a_function_is_no_indentation() -> None:
    function = "\fdef f(x):\n    y = x\n    return y\n"
    assert not is_indented(function)
    assert is_indented("\f    def f(self):\n        return self\n")
    regions = regions_of(function)
    assert {outcome_of(region, region.lines, set()) for region in regions} == {Outcome.UNCHANGED}
