"""Provide reviews, tests and acceptances of one project to coding agents."""
