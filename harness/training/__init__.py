"""Learn from bugs and episodes: the policy of the solver `search`."""
