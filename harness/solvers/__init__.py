"""Solvers: a buggy tree and a specification in, a patch out; with a model, or by search without one."""
