"""Make rows to train a language model that writes repairs."""
