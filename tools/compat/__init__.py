"""Linnet in other people's projects: `make compat`, or `python -m tools.compat [PROJECT ...]`.

Each project of the list in projects.py is installed in an environment of its own below .compat/ and runs its
case, a file in cases/, in a process of its own:

    check(rnn, folder)    train, save and load with the real library; raises an error if something is wrong
    work(rnn)             returns a function without arguments, which is timed
    CONTESTANTS           what is given as `rnn`, by name, the project's own first (default: nn.LSTM, then
                          Linnet's LSTM and SRU)

Models that linnet.convert changes are a list of their own there, with a file for each in models/.

Results are rows of benchmarks/compat.csv (record.py); the tables of docs/compatibility.md (page.py) and of
docs/convert.md (models_page.py) come from them.
"""
