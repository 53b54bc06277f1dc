"""The loop that lets a model work in a sandbox: its tools, its context window, its prompts."""
