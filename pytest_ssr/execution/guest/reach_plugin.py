"""A pytest plugin that announces files, tests and fixtures to `reach_probe`."""

import pytest
import ssr_reach_probe as probe
from _pytest.assertion.rewrite import AssertionRewritingHook

# Up to pytest 4 it is an older kind of import hook.
probe.while_importing(
    AssertionRewritingHook, "exec_module" if hasattr(AssertionRewritingHook, "exec_module") else "load_module"
)


class Plugin:
    """Assigns the reached statements to tests."""

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector):
        """Store which file is being collected."""
        path = str(getattr(collector, "path", None) or collector.fspath)
        probe.enter_file(path, collector.nodeid.partition("::")[0])
        yield
        probe.leave_file()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self):
        """End the phase in which everything counts as import."""
        probe.begin_tests()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        """Assign to one test what it reaches."""
        probe.start_test(item.nodeid)
        yield
        probe.end_test()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef, request):
        """Assign what a fixture of a wider scope reaches to every test of that scope."""
        if fixturedef.scope == "function":
            yield
            return
        file = request.node.nodeid.partition("::")[0]
        with probe.shared(file if fixturedef.scope in ("class", "module") else ""):
            yield

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self):
        """Write the rest."""
        probe.finish()


def pytest_configure(config):
    """Register the plugin."""
    config.pluginmanager.register(Plugin(), "ssr-reach")
