"""The sandboxes `docker` and `gvisor`; only this package uses the Docker SDK."""
