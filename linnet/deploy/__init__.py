"""Export to ONNX, and weights of other implementations."""
