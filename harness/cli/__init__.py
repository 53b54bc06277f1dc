"""The command line `ssr`."""
