"""Reads recorded runs and trained models: tables, figures, pages, samples."""
