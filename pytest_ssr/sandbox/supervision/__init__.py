"""Start, limit, measure and kill the processes of sandboxes and their descendants."""
