"""The one training loop, its settings, its records and its checkpoints."""
