"""One step of a model as a small program, from which source code is written in other languages."""
