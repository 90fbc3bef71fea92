"""Export to ONNX, models in int8, and weights of other implementations."""
