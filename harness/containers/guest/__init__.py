"""Programs that enter the namespaces of a container; each is run as a file, with the standard library alone."""
