"""linnet show: the code that a unit's step becomes."""

from __future__ import annotations

import argparse

from linnet.analysis.kernel_code import DTYPES, gpu_kernel, kernel
from linnet.cli.parser import DEVICES, unit_name
from linnet.units import UNITS


def add_options(command: argparse.ArgumentParser) -> None:
    things = command.add_subparsers(dest="thing", required=True, metavar="THING")
    about = "The traced operations of a unit's step, and then the code that they are compiled to."
    shown = things.add_parser("kernel", help=about, description=about)
    add = shown.add_argument
    add("unit", type=unit_name, metavar="UNIT", help=", ".join(UNITS))
    add("--backward", action="store_true", help="show the kernel of the gradient")
    add("--assembly", action="store_true", help="show machine code instead of LLVM or Triton code")
    add("--device", choices=DEVICES, default="cpu", help="cuda: the kernel for a GPU (cpu)")
    add("--dtype", choices=list(DTYPES), default="float32", help="of inputs and state (float32)")
    shown.set_defaults(run=show_kernel)


def show_kernel(options: argparse.Namespace) -> None:
    show = gpu_kernel if options.device == "cuda" else kernel
    print(show(options.unit, options.backward, options.assembly, options.dtype))
