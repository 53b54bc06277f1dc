"""Code that runs inside a sandbox, in the interpreter of the project's tests; nothing here is imported outside.

Each module is copied into the sandbox as source, named `ssr_` and its name. They need only Python 3.8, the standard
library and pytest.
"""
