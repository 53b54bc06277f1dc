"""The role that injects, played by a model; injectors that need none are the plugin's."""
