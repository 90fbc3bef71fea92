"""Trained models for other runtimes."""
