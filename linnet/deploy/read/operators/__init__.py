"""ONNX's operators in torch, a file for each family; `table` has all of them."""
