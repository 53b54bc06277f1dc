"""Publish what `ssr export` wrote: check it, describe it in figures and plots, and send it to a hub or to git."""
