"""Tasks: a batch, its loss and its figures."""
