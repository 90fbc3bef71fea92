"""Linnet in other people's projects: `make compat`, or `python -m tools.compat [PROJECT ...]`.

Each project of the list in projects.py is installed in an environment of its own below .compat/ and runs its
case, a file in cases/, in a process of its own:

    check(rnn, folder)    train, save and load with the real library; raises an error if something is wrong
    work(rnn)             returns a function without arguments, which is timed
    CONTESTANTS           what is given as `rnn`, by name, the project's own first (default: nn.LSTM, then
                          Linnet's LSTM and SRU)

Results are rows of benchmarks/compat.csv (record.py); the table of docs/compatibility.md comes from them
(page.py).
"""
