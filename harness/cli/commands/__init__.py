"""The commands of `ssr`."""
