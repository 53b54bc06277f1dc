"""Leave out the tests of the server if its package is not there; `tox -e mcp` always runs them."""

import importlib.util
import os

is_there = "SSR_TEST_MCP" in os.environ or importlib.util.find_spec("mcp") is not None
collect_ignore = [] if is_there else ["test_mcp_server.py"]
