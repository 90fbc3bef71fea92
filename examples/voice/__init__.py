"""Silero's voice detector, exported to C and to a web page."""
