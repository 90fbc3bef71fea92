"""Reads recorded runs and trained models: tables, pages, samples."""
