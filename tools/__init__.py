"""Tools for developers of Linnet: soak test, kill test, quick tests, GPU model, tables of the READMEs.

Run each from the root of the repository: `python -m tools.soak --minutes 5`. The wheel does not contain them.
"""
