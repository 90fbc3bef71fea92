"""Blocks of larger models around a unit: convolutions, gates and norms as their papers have them."""
