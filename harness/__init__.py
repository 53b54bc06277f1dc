"""The benchmark harness that stands on pytest_ssr; in this release, the command line `ssr`."""
