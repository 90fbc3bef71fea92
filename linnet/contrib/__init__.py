"""Linnet's units in other libraries, each of which is an extra: see docs/compatibility.md."""
