"""Read task directories of Harbor, and run their verifiers and reference solutions in containers."""
