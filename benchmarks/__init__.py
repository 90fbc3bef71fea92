"""The project's own benchmarks: speed and memory, relative to other packages and to hardware limits.

`python -m benchmarks` runs them in a checkout; users have `linnet bench`, which is small.
"""
