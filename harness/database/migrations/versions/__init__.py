"""Migrations of the tables, in order."""
