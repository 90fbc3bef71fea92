"""Tools for developers of Linnet: the soak test, the kill test, quick tests, the GPU model, tables of the READMEs.

Run each from the root of the repository: `python -m tools.soak --minutes 5`. The wheel does not contain them.
"""
