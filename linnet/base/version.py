"""The version of Linnet, which the build reads from this file."""

__version__ = "0.2.0.dev0"
