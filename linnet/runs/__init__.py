"""A run on disk: its settings, records and checkpoints, and `load`, which reads a trained model back."""
