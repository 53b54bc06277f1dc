"""Generate code for holes in a function, by a network that was trained on the code of other projects."""
