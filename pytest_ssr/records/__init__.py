"""Define the records that the plugin writes and reads."""
