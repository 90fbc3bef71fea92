"""The program of a step as source code: C, JavaScript, WebAssembly."""
