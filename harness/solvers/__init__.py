"""Solvers, which repair a buggy tree to meet a specification: with a model, or by search without one."""
