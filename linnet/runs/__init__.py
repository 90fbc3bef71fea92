"""What a run is on disk: its settings, records and checkpoints; `load` reads a trained model back."""
