"""Injectors that use a model, a recording or given artifacts; those without a model belong to the plugin."""
