"""Grade predictions over instances, one by one or under xdist, and write reports."""
