"""Train the policy that ranks the candidate repairs of the solver `search`."""
