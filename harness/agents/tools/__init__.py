"""The tools of an agent: `bash`, `editor`, `submit`, and tools from folders in SWE-agent's layout."""
