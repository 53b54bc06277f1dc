"""Clients for models, named as on the command line: `openai/...`, `hosted_vllm/...`, `vllm:PATH`, `scripted:FILE`."""
