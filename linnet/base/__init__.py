"""What all folders need: checks of options, suggestions, atomic files, the cache folder, tables, the machine.

It imports nothing else of the package, and neither torch nor numpy.
"""
