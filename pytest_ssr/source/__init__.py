"""Parse, locate, edit and compare Python source."""
