"""Modules from files that others wrote: ONNX, torch.export. Such files are untrusted input."""
