"""Forecasts of other libraries and of Linnet on the same series, with the same CPU time.

    python -m tools.compat.forecasts      all that experiments/forecast_rivals.csv does not have yet
    python -m tools.compat.forecasts --sets m4-weekly --contestants darts-block
    python -m tools.compat.forecasts --table

Each contestant trains in a process with one thread until its CPU time is used up, then answers. `sets.py` has
the series, `contestants.py` the settings, one file for each library how it is called, `measure.py` the
measures, which are Linnet's own (linnet.tasks.forecast_measures).
"""
