"""The atlas: every unit on a fixed set of small tasks, its quality against its time and its size."""
