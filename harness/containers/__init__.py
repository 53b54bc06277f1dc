"""Run containers without an engine: images from a registry, Dockerfiles line by line, several commands in one root."""
