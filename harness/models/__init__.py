"""Models by the names that users know: `openai/...`, `hosted_vllm/...`, `vllm:PATH`, `scripted:FILE`."""
