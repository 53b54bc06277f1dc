"""Run a model as an agent in a sandbox: the loop, the tools, the context window and the prompts."""
