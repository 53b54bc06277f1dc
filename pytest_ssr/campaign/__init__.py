"""Run an injection campaign: try candidates, validate the bugs, and report the results."""
