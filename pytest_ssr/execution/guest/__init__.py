"""Code that runs inside a sandbox, in the interpreter of the project's tests; nothing here is imported outside.

Each module is copied into the sandbox as source, named `ssr_` and its name. They need only Python 3.6, the standard
library and pytest 3.0; what each row's evaluation needs, `reporter` to `evidence`, has no syntax newer than Python 3.5.
"""
