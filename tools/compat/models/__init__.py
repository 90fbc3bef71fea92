"""Real models for the table of docs/convert.md, one file for each package.

    work(convert)   builds the model, gives its module to `convert`, and returns a call without arguments that
                    returns numbers: what a user of the package runs
    own()           returns the call of the package itself, if that is not `work` without a conversion: in
                    NumPy, or by ONNX Runtime
    CONVERSIONS     what `work` is called with, if that is not linnet.convert: READ for a model that
                    linnet.read_model reads from a file, where `convert` returns the module to run

The weights are those in the package, or random ones where it has none.
"""
