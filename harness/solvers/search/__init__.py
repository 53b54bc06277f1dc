"""A solver without a model: spectrum-based fault localisation, candidate repairs, and the plugin's fast execution."""
