"""Tasks: what a model can learn. `TASKS` lists them; each is one file, and `base.Task` is their contract.

A task of your own is a subclass of `Task` and one line, after which Python has it:

    linnet.tasks.TASKS["parity"] = Parity

For the command line, set LINNET_TASKS to the Python file (or module) with that line; several are separated as
in PATH:

    LINNET_TASKS=parity.py linnet train parity
"""

from linnet.tasks.registry import TASKS

__all__ = ["TASKS"]
