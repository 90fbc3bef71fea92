"""The papers' tables and figures as runs, and our results; see README.md."""
