"""Model a project under test: its snapshot, its states, its interpreter, and the roles of its files."""
