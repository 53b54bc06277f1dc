"""Estimate rates, means and abilities with intervals. Only this package imports scipy."""
