"""Models outside of Python and Linnet: C, JavaScript, WebAssembly, ONNX, int8, foreign weights."""

from linnet.deploy.causal import Causal

__all__ = ["Causal"]
