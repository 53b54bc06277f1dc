"""Open sandboxes on other machines: a host holds them, a transport carries the calls, a provider uses them."""
