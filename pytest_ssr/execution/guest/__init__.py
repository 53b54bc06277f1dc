"""What runs inside of a sandbox, by whatever interpreter runs the project's tests; nothing here is imported outside.

Each module is copied into the sandbox as text, as `ssr_` and its name. They need the standard library and pytest only,
and Python 3.8.
"""
