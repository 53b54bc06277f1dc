"""Plan runs on clusters: how many nodes they need, how long they take, and what bounds them."""
