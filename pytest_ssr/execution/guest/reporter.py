"""A pytest plugin that reports exact node ids, outcomes and durations over a separate channel.

Input: `SSR_CHANNEL` (a file to append to), `SSR_ORDER_SEED` (reorder files, then classes and functions in each).
Output: one JSON object per line: begin, collected, collect-error, start, done, end.
"""

import gc
import os
import sys
import time
import types

import pytest
import ssr_channel
from _pytest import hookspec

_ORDER_SEED = os.environ.pop("SSR_ORDER_SEED", "")
_ROOT = os.getcwd()
# How many of the arguments are not from the project's configuration.
_GIVEN = [0]
_BRIEF = False
_INSTANCE = "::()::"
# What the options of pytest and of its plugins set, by the names that their parsers give it: options that change which
# tests run, in which process or in what order, and those that write reports.
_NEUTRAL = (
    *("cacheclear", "cacheshow", "dist", "distload", "durations", "durations_min", "failedfirst", "forked", "htmlpath"),
    *("last_failed_no_failures", "lf", "looponfail", "maxfail", "maxprocesses", "maxschedchunk", "maxworkerrestart"),
    *("newfirst", "no_cov", "no_cov_on_fail", "numprocesses", "only_rerun", "picked", "px", "report_log"),
    *("rerun_except", "rsyncdir", "rsyncignore", "self_contained_html", "tests_per_worker", "testrunuid", "trace"),
    *("tx", "workers", "xmlpath"),
)
_NEUTRAL_STARTS = ("cov_", "random_order_", "randomly_", "reruns", "ssr_", "stepwise", "testmon", "usepdb")
# Options of plugins that an environment made for evaluation may lack: what pytest cannot parse, it refuses.
_WITH_VALUE = (
    *("--numprocesses", "--maxprocesses", "--dist", "--cov-report", "--cov-config", "--cov-fail-under"),
    *("--cov-context", "--reruns", "--reruns-delay", "--random-order-bucket", "--random-order-seed"),
    *("--randomly-seed", "--html"),
)
_WITHOUT_VALUE = ("--no-cov", "--cov-append", "--cov-branch", "--random-order", "--self-contained-html", "--forked")
# Without the cache's plugin, `cache_dir` is an unknown option, which `-W error` turns into an error.
_DROPPED_PLUGINS = frozenset(("xdist", "randomly", "pytest_cov", "random_order", "pytest_randomly", "no:cacheprovider"))


def add_absent_options(parser, options):
    """Let the parser read options of plugins that are not installed, so that they can be dropped."""
    used = {option.partition("=")[0] for option in options}
    group = parser.getgroup("ssr-absent", "options of plugins that are not installed")
    absent = [(name, {}) for name in _WITH_VALUE]
    absent += [(name, {"action": "store_true"}) for name in _WITHOUT_VALUE]
    absent.append(("--cov", {"nargs": "?", "const": ".", "dest": "cov_source"}))
    if any(option.startswith("-n") for option in options):
        absent.append(("-n", {"dest": "numprocesses"}))
        used.add("-n")
    for name, settings in absent:
        if name in used and not _is_known(parser, name, settings):
            group._addoption(name, **settings)


def _is_known(parser, name, settings):
    """Return whether the parser has an option, because its plugin is installed."""
    # A second option of that name is refused only when the parser is used, with some releases of pytest.
    words = [name] if "action" in settings else [name, "1"]
    try:
        return name not in parser.parse_known_and_unknown_args(words)[1]
    except (Exception, SystemExit):
        return True


def kept_options(parser, options):
    """Drop those of the project's own options that change which tests run, in which process, or in what order.

    pytest's own parser reads each of them, so that no spelling matters.
    """
    usual = vars(parser.parse_known_args([]))
    result = []
    for piece in _pieces(parser, options):
        option = piece[0]
        if option == "--":
            # Options of ours follow.
            continue
        if not _is_neutralised(parser, usual, piece):
            result += piece
            continue
        # Several options without a value can be in one argument, such as `-xv`.
        letters = ["-" + letter for letter in option[1:]] if len(piece) == 1 and option[1:2] != "-" else []
        if all(_parsed(parser, [letter]) is not None for letter in letters):
            result += [letter for letter in letters if not _is_neutralised(parser, usual, [letter])]
    return result


def _pieces(parser, options):
    """Split options into the parts that the parser reads by themselves: an option with its values, or a path."""
    rest = list(options)
    while rest:
        size = 1
        while rest[0].startswith("-") and size < len(rest) and _takes(parser, rest[:size], rest[size]):
            size += 1
        yield rest[:size]
        del rest[:size]


def _takes(parser, piece, following):
    """Return whether an option takes the following argument as its value, and not as a path."""
    before, after = _parsed(parser, piece), _parsed(parser, [*piece, following])
    if before is None:
        return after is not None
    return not following.startswith("-") and after is not None and not after.get("file_or_dir")


def _is_neutralised(parser, usual, piece):
    """Return whether a part of the options sets anything that a run must not have, as a cluster such as `-xv` does."""
    values = _parsed(parser, piece) or {}
    changed = [name for name, value in values.items() if name != "file_or_dir" and value != usual.get(name)]
    if "plugins" in changed:
        return any(plugin.strip() in _DROPPED_PLUGINS for plugin in values["plugins"])
    return any(name in _NEUTRAL or name.startswith(_NEUTRAL_STARTS) for name in changed)


def _parsed(parser, arguments):
    """Return what arguments set, by name; None if the parser refuses them."""
    try:
        return vars(parser.parse_known_args(arguments))
    except (Exception, SystemExit):
        return None


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_parse(args):
    """Count the arguments before those of the configuration join them."""
    _GIVEN[0] = len(args)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config, parser, args):
    """Neutralise the project's own options before other plugins act on them."""
    own = _GIVEN[0]
    head = list(args[: len(args) - own])
    add_absent_options(parser, head)
    options = kept_options(parser, head)
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


def loaded_by_pytest(session):
    """Return the files of the tree that pytest has loaded as plugins, or whose assertions it was told to rewrite, or
    that define tests which other files import.

    The tests use them, and do not test them, unless the project is itself a plugin: then its entry point names it. A
    package that is registered for rewriting counts as a whole, unless that is all the code that the tests import.
    """
    manager = session.config.pluginmanager
    own = {getattr(plugin, "__name__", "").partition(".")[0] for plugin, _ in manager.list_plugin_distinfo()}
    marked = getattr(manager.rewrite_hook, "_must_rewrite", ())
    plugins = [plugin for plugin in manager.get_plugins() if isinstance(plugin, types.ModuleType)]
    modules = dict(sys.modules)
    defining = set(_defining_modules(session.items))
    loaded = _files_of(plugins + [modules[name] for name in defining.union(marked) if name in modules], own)
    below = _files_of([module for name, module in modules.items() if _is_below(name, marked)], own)
    tests = {item.nodeid.split("::", 1)[0] for item in session.items}
    code = {path for path in _files_of(modules.values(), ()) if not path.endswith(("__init__.py", "conftest.py"))}
    return sorted(loaded | below if code - tests - loaded - below else loaded)


def _defining_modules(items):
    """Yield the names of the modules in which test functions are written, not those of decorators around them."""
    for item in items:
        function = getattr(item, "function", None)
        if getattr(function, "__name__", "") == getattr(item, "originalname", None):
            yield getattr(function, "__module__", None)


def _files_of(modules, left_out):
    """Return the files of those modules that are in the tree, without those of some packages."""
    prefix = _ROOT.rstrip("/") + "/"
    files = set()
    for module in list(modules):
        path = getattr(module, "__file__", None)
        path = os.path.abspath(path) if isinstance(path, str) else ""
        if path.startswith(prefix) and "/site-packages/" not in path:
            if getattr(module, "__name__", "").partition(".")[0] not in left_out:
                files.add(path[len(prefix) :])
    return files


def _is_below(name, packages):
    parts = name.split(".")
    return any(".".join(parts[:i]) in packages for i in range(1, len(parts)))


def is_from_a_collector(item):
    """Return whether a collector of the project, or of a plugin, has made a test of something else than a function."""
    return not isinstance(item, pytest.Function) and type(item).__name__ != "DoctestItem"


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
        collectors = [] if _BRIEF else [i.nodeid for i in session.items if is_from_a_collector(i)]
        others = [] if _BRIEF or selection is None else selection.collected or []
        identities = session.config.pluginmanager.get_plugin("ssr-identities")
        ssr_channel.send(
            "collected",
            ids=ids,
            parameters=parameters,
            modules=modules,
            doctests=doctests,
            by_collectors=collectors,
            before_selection=others,
            by_position=sorted(identities.functions) if identities is not None else [],
            parametrized=identities.seen if identities is not None and session.config.option.collectonly else [],
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
        surface = [] if _BRIEF else loaded_by_pytest(session)
        evidence = sys.modules.get("ssr_evidence")
        exercised = evidence.exercised() if evidence is not None else []
        ssr_channel.send(
            "end",
            exit=int(exitstatus),
            sources=sources,
            foreign=foreign,
            exercised=exercised,
            surface=surface,
            time=time.time(),
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
