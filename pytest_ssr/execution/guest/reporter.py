"""A pytest plugin that reports exact node ids, outcomes and durations over a separate channel.

Input: `SSR_CHANNEL` (a file to append to), `SSR_ORDER_SEED` (reorder files, then classes and functions in each).
Output: one JSON object per line: begin, collected, collect-error, start, done, end.
"""

import gc
import os
import sys
import time

import pytest
import ssr_channel
from _pytest import hookspec

_ORDER_SEED = os.environ.pop("SSR_ORDER_SEED", "")
_ROOT = os.getcwd()
# How many of the arguments are not from the project's configuration.
_GIVEN = [0]
_BRIEF = False
_INSTANCE = "::()::"
_WITH_VALUE = frozenset(("-k", "-m", "-p", "-c", "-o", "-r", "-W"))
_DROPPED_WITH_VALUE = [
    "-n",
    "--numprocesses",
    "--maxprocesses",
    "--dist",
    "--tx",
    "--maxfail",
    "--reruns",
    "--reruns-delay",
    "--only-rerun",
    "--rerun-except",
    "--random-order-bucket",
    "--random-order-seed",
    "--junitxml",
    "--junit-xml",
    "--html",
    "--cov-report",
    "--cov-config",
    "--cov-fail-under",
    "--cov-context",
    "--durations",
    "--durations-min",
    "--ssr-count",
    "--ssr-injector",
    "--ssr-seed",
    "--ssr-source",
    "--ssr-sandbox",
    "--ssr-store",
    "--ssr-validate",
    "--ssr-time-limit",
    "--ssr-time",
    "--ssr-diff",
    "--ssr-python",
    "--randomly-seed",
]
_DROPPED_PREFIXES = [
    "-pno:cacheprovider",
    "--cov",
    "--no-cov",
    "--exitfirst",
    "--lf",
    "--last-failed",
    "--ff",
    "--failed-first",
    "--nf",
    "--new-first",
    "--sw",
    "--stepwise",
    "--reruns",
    "--random-order",
    "--randomly",
    "--looponfail",
    "--pdb",
    "--trace",
    "--html",
    "--self-contained-html",
    "--ssr-",
    "--cache-clear",
    "--numprocesses=",
    "--maxprocesses=",
    "--dist=",
    "--tx=",
    "--maxfail=",
    "--junitxml=",
    "--junit-xml=",
    "--durations",
]
# Without the cache's plugin, `cache_dir` is an unknown option, which `-W error` turns into an error.
_DROPPED_PLUGINS = frozenset(("xdist", "randomly", "pytest_cov", "random_order", "pytest_randomly", "no:cacheprovider"))


def kept_options(options):
    """Drop those of the project's own options that change which tests run, in which process, or in what order."""
    result = []
    i = 0
    while i < len(options):
        option = options[i]
        following = options[i + 1] if i + 1 < len(options) else None
        i += 1
        if option in _WITH_VALUE and following is not None:
            i += 1
            if not (option == "-p" and following in _DROPPED_PLUGINS):
                result += [option, following]
        elif option in _DROPPED_WITH_VALUE or option == "--cov":
            if following is not None and not following.startswith("-"):
                i += 1
        elif option.startswith(tuple(_DROPPED_PREFIXES)) or (option[:2] == "-n" and option[2:].isalnum()):
            continue
        elif option[:1] == "-" and option[1:2] != "-" and option[1:] and not option[1:].strip("qvslxdf"):
            rest = "".join(c for c in option[1:] if c not in "xdf")
            if rest:
                result.append("-" + rest)
        else:
            result.append(option)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_parse(args):
    """Count the arguments before those of the configuration join them."""
    _GIVEN[0] = len(args)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config, parser, args):
    """Neutralise the project's own options before other plugins act on them."""
    own = _GIVEN[0]
    head = list(args[: len(args) - own])
    options = kept_options(head)
    args[: len(args) - own] = options
    namespace = early_config.known_args_namespace
    if hasattr(namespace, "cov_source"):
        namespace.cov_source = None
        namespace.no_cov = True
    ssr_channel.send("begin", addopts=options, pytest=pytest.__version__)


def begin_child(channel, order_seed):
    """In a fork of a warm process: report to another channel, without what the first process has reported."""
    global _ORDER_SEED, _BRIEF
    ssr_channel.redirect(channel)
    _BRIEF = True
    _ORDER_SEED = "" if order_seed is None else str(order_seed)


def failure_line(report):
    """Return the first line of what a test failed with, at most 200 characters."""
    message = getattr(getattr(report.longrepr, "reprcrash", None), "message", None)
    return (str(message).strip().partition("\n")[0] if message else reason_of(report))[:200]


def reason_of(report):
    """Return the lines of a report that pytest marks as errors, or its last line."""
    lines = str(report.longrepr or "").strip().splitlines()
    return " ".join([x[1:].strip() for x in lines if x.startswith("E ")] or lines[-1:])


def announce(items):
    """In a fork of a session that is collected: report the tests that will run."""
    ssr_channel.send(
        "collected", ids=[item.nodeid for item in items], parameters={}, modules=[], doctests=[], before_selection=[]
    )


def ordered(items):
    """Return the items in the requested order."""
    return ssr_channel.shuffled(items, _ORDER_SEED) if _ORDER_SEED else items


class Reporter:
    """Collects the phases of each test and sends one record per test."""

    def __init__(self):
        """Start with no test running."""
        self.phases = {}
        self.failures = {}
        self.positions = {}

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_generate_tests(self, metafunc):
        """Store each parameter's index in its mark: newer pytest renumbers the parameters after this."""
        yield
        for callspec in getattr(metafunc, "_calls", ()):
            self.positions[id(callspec)] = callspec, sorted(callspec.indices.items())

    @pytest.hookimpl(tryfirst=True)
    def pytest_itemcollected(self, item):
        """Name a method as newer pytest does: older ones add the instance, as in `test_a.py::TestA::()::test_b`."""
        name, bracket, parameters = item.nodeid.partition("[")
        if _INSTANCE in name:
            item._nodeid = name.replace(_INSTANCE, "::") + bracket + parameters

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        """Reorder the tests if an order seed is set."""
        items[:] = ordered(items)

    def pytest_collection_finish(self, session):
        """Send every id that will run, with the indices of its parameters in their marks."""
        parameters = {}
        for item in session.items:
            _, indices = self.positions.get(id(getattr(item, "callspec", None)), (None, None))
            if indices:
                parameters[item.nodeid] = indices
        modules = [] if _BRIEF else ssr_channel.outside_modules(_ROOT)
        ids = [item.nodeid for item in session.items]
        selection = session.config.pluginmanager.get_plugin("ssr-selection")
        doctests = [] if _BRIEF else [i.nodeid for i in session.items if type(i).__name__ == "DoctestItem"]
        others = [] if _BRIEF or selection is None else selection.collected or []
        ssr_channel.send(
            "collected",
            ids=ids,
            parameters=parameters,
            modules=modules,
            doctests=doctests,
            before_selection=others,
        )

    def pytest_collectreport(self, report):
        """Send what could not be collected."""
        if report.failed:
            ssr_channel.send("collect-error", id=report.nodeid, reason=reason_of(report)[:500])

    def pytest_runtest_logstart(self, nodeid):
        """Send the id of the test that starts, so that a crash can be attributed."""
        self.phases[nodeid] = ["", 0.0, 0.0]
        ssr_channel.send("start", id=nodeid)

    def pytest_runtest_logreport(self, report):
        """Merge one phase into the test's outcome; the worst of all phases counts."""
        state = self.phases.setdefault(report.nodeid, ["", 0.0, 0.0])
        state[1] += getattr(report, "duration", 0.0)
        if report.when == "setup":
            state[2] += getattr(report, "duration", 0.0)
        expected = hasattr(report, "wasxfail")
        if report.outcome == "failed":
            outcome = "failed" if report.when == "call" else "error"
            if state[0] not in ("failed", "error"):
                state[0] = outcome
                if not _BRIEF:
                    self.failures[report.nodeid] = failure_line(report)
        elif report.outcome == "skipped" and not hasattr(report, "context"):
            # Only reports of subtests have a context; a test with skipped subtests is not skipped.
            if state[0] not in ("failed", "error"):
                state[0] = "xfailed" if expected else "skipped"
        elif report.outcome == "passed" and report.when == "call" and not state[0]:
            state[0] = "xpassed" if expected else "passed"

    def pytest_runtest_logfinish(self, nodeid):
        """Send the test's outcome."""
        outcome, duration, setup = self.phases.pop(nodeid, ["", 0.0, 0.0])
        message = self.failures.pop(nodeid, "")
        if outcome:
            duration, setup = round(duration, 6), round(setup, 6)
            ssr_channel.send("done", id=nodeid, outcome=outcome, duration=duration, setup=setup, message=message)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        """Send the exit status and which files were imported from where."""
        sources, foreign = ([], []) if _BRIEF else ssr_channel.imported(_ROOT)
        evidence = sys.modules.get("ssr_evidence")
        exercised = evidence.exercised() if evidence is not None else []
        ssr_channel.send(
            "end", exit=int(exitstatus), sources=sources, foreign=foreign, exercised=exercised, time=time.time()
        )
        if "P" not in (session.config.option.reportchars or ""):
            _without_summary(session.config.hook.pytest_terminal_summary)


class _LogFinishSpec:
    """The hook `pytest_runtest_logfinish`, which pytest has since 3.4."""

    def pytest_runtest_logfinish(self, nodeid, location):
        """Be called when a test has ended."""


class _LogFinish:
    """Calls that hook in older pytest."""

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        """Report the end of a test."""
        yield
        item.config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _without_summary(hook):
    """Skip the summaries that nobody reads: one plugin imports its whole library for them at the end of each run."""
    try:
        for implementation in list(hook.get_hookimpls()):
            hook._remove_plugin(implementation.plugin)
    except (AttributeError, ValueError):
        pass


def pytest_addhooks(pluginmanager):
    """Provide the hook that other plugins need as well."""
    if not hasattr(hookspec, "pytest_runtest_logfinish"):
        pluginmanager.add_hookspecs(_LogFinishSpec)
        pluginmanager.register(_LogFinish(), "ssr-log-finish")


def pytest_configure(config):
    """Register the reporter when the options are known."""
    config.pluginmanager.register(Reporter(), "ssr-reporter")


def pytest_unconfigure():
    """Avoid two garbage collections at exit, a sixth of a short run; everything is reported by now."""
    # Python has it since 3.7.
    freeze = getattr(gc, "freeze", None)
    if freeze is not None:
        freeze()
