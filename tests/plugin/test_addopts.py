"""A project's own `addopts` are for its tests: a session that injects or validates does not use them."""

from __future__ import annotations

import pytest


def test_addopts_are_dropped_except_for_ours(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makeini(
        "[pytest]\naddopts = --durations=5 -ra -x -k nothing --junitxml=own.xml --ssr-count=4 --ssr-seed 3 tests\n"
        "testpaths = other\n"
    )
    pytester.mkdir("tests")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--tb=line")
    config = pytester.parseconfig("--ssr-inject", "--ssr-seed=7", "--maxfail=3")
    values = config.option
    assert (values.durations, values.reportchars, values.keyword, values.xmlpath) == (None, "fE", "", None)
    assert (values.ssr_count, values.ssr_seed, values.maxfail, values.tbstyle) == ("4", "7", 3, "line")
    assert config.args_source is not pytest.Config.ArgsSource.ARGS


def test_options_of_the_command_line_stay(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = --durations=5\n")
    config = pytester.parseconfig("--ssr-validate=x", "--durations=5", "--junitxml=mine.xml")
    assert (config.option.durations, config.option.xmlpath) == (5, "mine.xml")


def test_a_usual_session_keeps_its_addopts(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = --durations=5\n")
    assert pytester.parseconfig().option.durations == 5


def test_conftest_files_are_loaded_with_them(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = --import-mode=importlib --flavour=sweet\n")
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addoption('--flavour', default='plain')\n")
    config = pytester.parseconfig("--ssr-inject")
    assert config.known_args_namespace.importmode == "importlib"
    assert config.option.flavour == "plain"


def test_coverage_does_not_start(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = -p measuring --cov=x\n")
    pytester.makepyfile(
        measuring="""
        import pytest


        def pytest_addoption(parser):
            parser.addoption("--cov", action="append", default=[], dest="cov_source")


        @pytest.hookimpl(tryfirst=True)
        def pytest_load_initial_conftests(early_config):
            early_config.started = bool(early_config.known_args_namespace.cov_source)
        """
    )
    pytester.syspathinsert()
    assert not pytester.parseconfig("--ssr-inject").started  # type: ignore[attr-defined]
    assert pytester.parseconfig("--ssr-inject", "--cov=y").started  # type: ignore[attr-defined]
    assert pytester.parseconfig().started  # type: ignore[attr-defined]


def test_no_plugin_watches_how_long_an_item_takes(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfaulthandler_timeout = 30\n")
    assert pytester.parseconfigure().pluginmanager.hasplugin("faulthandler")
    assert not pytester.parseconfigure("--ssr-inject").pluginmanager.hasplugin("faulthandler")
