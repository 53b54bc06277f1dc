"""Repairs that a language model on this machine writes: the lines of a region, given the function around it."""
