"""What an agent can do: `bash`, `editor`, `submit`, and tools from folders in SWE-agent's layout."""
