"""Files are untrusted input: no code runs, no memory is taken beyond the limit, and the error says why."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet import UnreadableModel
from linnet.deploy.read.files import model_of
from linnet.deploy.read.wire import check_size
from tools.onnx_cases import CASES, model, node, numbers

LIMIT = 2**20


def read(proto: onnx.ModelProto, limit: int = LIMIT):
    return model_of(proto.SerializeToString(), None, {}, limit)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


HUGE = 2**40
GROWING = {
    "ConstantOfShape": (["huge"], {"huge": whole(HUGE)}),
    "Expand": (["x", "huge"], {"huge": whole(HUGE, 2, 3)}),
    "Tile": (["x", "huge"], {"huge": whole(HUGE, 1)}),
    "Pad": (["x", "huge"], {"huge": whole(0, 0, HUGE, 0)}),
    "Range": (["zero", "huge", "one"], {"zero": np.array(0), "huge": np.array(2**39), "one": np.array(1)}),
    "OneHot": (["ids", "huge", "pair"], {"ids": whole(1), "huge": whole(HUGE), "pair": numbers(2)}),
    "Resize": (["x", "", "huge"], {"huge": np.array([2.0**30, 1], np.float32)}),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_node_that_would_take_more_than_the_limit_is_refused(name: str):
    inputs, constants = GROWING[name]
    proto = model([node(name, inputs, ["y"])], {"x": (2, 3)}, ["y"], constants)
    with pytest.raises(UnreadableModel, match=rf"\({name}\) needs [\d,]+ bytes .* the limit is 1,048,576"):
        read(proto)(torch.zeros(2, 3))


def test_a_value_that_doubles_again_and_again_is_refused():
    names = ["x", *(f"v{n}" for n in range(40))]
    nodes = [node("Concat", [a, a], [b], axis=0) for a, b in pairwise(names)]
    with pytest.raises(UnreadableModel, match=r"\(Concat\) needs [\d,]+ bytes"):
        read(model(nodes, {"x": (2, 3)}, [names[-1]]))(torch.zeros(2, 3))


def test_padding_that_a_convolution_would_need_counts():
    """The result is small; the padded input would not be."""
    proto = model(
        [node("Conv", ["x", "w"], ["y"], pads=[0, 2**30], strides=[2**29])],
        {"x": (1, 1, 4)},
        ["y"],
        {"w": numbers(1, 1, 1)},
    )
    with pytest.raises(UnreadableModel, match=r"\(Conv\) needs [\d,]+ bytes"):
        read(proto)(torch.zeros(1, 1, 4))


def test_sizes_that_depend_on_values_are_checked_in_each_call():
    proto = model(
        [node("ConstantOfShape", ["n"], ["y"])], {"n": (1,)}, ["y"], dtypes={"n": TensorProto.INT64}
    )
    made = read(proto)
    for _ in range(2):
        assert made(torch.tensor([3])).tolist() == [0.0, 0.0, 0.0]
        with pytest.raises(UnreadableModel, match="needs 4,398,046,511,108 bytes"):
            made(torch.tensor([HUGE]))
    with pytest.raises(UnreadableModel, match=r"has the shape \[-1\], which no tensor has"):
        made(torch.tensor([-1]))


def test_values_that_nobody_reads_any_more_do_not_count():
    names = ["x", *(f"v{n}" for n in range(40))]
    nodes = [node("Relu", [a], [b]) for a, b in pairwise(names)]
    # 40 values of 256 kB each, of which two are in use at any time.
    read(model(nodes, {"x": (2**16,)}, [names[-1]]))(torch.zeros(2**16))


@pytest.mark.parametrize("dims", [[HUGE], [2**32, 2**32], [-1, 4], [1] * 40, [7]])
def test_a_tensor_with_other_numbers_than_its_shape_is_refused(dims: list[int]):
    proto = CASES["arithmetic"]()
    del proto.graph.initializer[0].dims[:]
    proto.graph.initializer[0].dims.extend(dims)
    with pytest.raises(UnreadableModel, match="the tensor 'w'"):
        read(proto)


def test_a_small_file_that_parses_to_a_large_model_is_refused():
    proto = CASES["lstm"]()
    content = proto.SerializeToString() + b"\x3a\x02\x0a\x00" * 10**5
    assert len(content) < LIMIT
    with pytest.raises(UnreadableModel, match="takes more memory than the limit when it is parsed"):
        check_size(content, onnx.ModelProto.DESCRIPTOR, LIMIT)


def test_subgraphs_may_not_nest_without_end():
    graph = helper.make_graph(
        [node("Neg", ["x"], ["y"])], "g", [], [helper.make_tensor_value_info("y", 1, None)]
    )
    for _ in range(9):
        inner = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([inner], "g", [], [helper.make_tensor_value_info("y", 1, None)])
    proto = model(graph.node, {"x": (2,), "c": ()}, ["y"], dtypes={"c": TensorProto.BOOL})
    with pytest.raises(UnreadableModel, match="subgraphs nested more than 8 deep"):
        read(proto, 2**26)


@pytest.mark.parametrize("content", [b"", b"\x00", b"hello", b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f"])
def test_what_is_not_onnx_is_refused(content: bytes, tmp_path: Path):
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(UnreadableModel):
        linnet.read_model(tmp_path / "model.onnx")


def test_operators_that_are_not_read_are_all_named():
    nodes = [
        node("NonZero", ["x"], ["a"]),
        node("Loop", ["a"], ["b"]),
        node("aten.relu.default", ["x"], ["y"]),
    ]
    with pytest.raises(
        UnreadableModel, match=r"does not read: Loop \(1\), NonZero \(1\), aten\.relu\.default \(1\);"
    ):
        read(model(nodes, {"x": (2, 3)}, ["y"]))


def test_weights_that_are_no_layer_are_refused():
    proto = CASES["lstm"]()
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(numbers(1, 20, 4), "w"))
    with pytest.raises(UnreadableModel, match="which are not those of one layer"):
        read(proto)
    proto = CASES["gru"]()
    proto.graph.node[0].attribute.append(helper.make_attribute("clip", 1.0))
    with pytest.raises(UnreadableModel, match=r"\(GRU\) has clip, which Linnet does not read"):
        read(proto)


def constant_with_an_input(proto: onnx.ModelProto) -> None:
    proto.graph.node.insert(0, node("Constant", ["x"], ["new"], value_int=1))


def no_input_of_a_layer(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].input[0] = ""


def weights_from_a_layer(proto: onnx.ModelProto) -> None:
    proto.graph.node.insert(0, node("LSTM", ["x", "w", "r"], ["made"], hidden_size=6))
    proto.graph.node[1].input[1] = "made"


def input_twice(proto: onnx.ModelProto) -> None:
    proto.graph.input.append(proto.graph.input[0])


def output_without_a_name(proto: onnx.ModelProto) -> None:
    proto.graph.output[0].name = ""


SENSELESS = (
    constant_with_an_input,
    no_input_of_a_layer,
    weights_from_a_layer,
    input_twice,
    output_without_a_name,
)


@pytest.mark.parametrize("change", SENSELESS, ids=lambda change: change.__name__)
def test_a_graph_that_makes_no_sense_is_refused(change: Callable[[onnx.ModelProto], None]):
    proto = CASES["lstm"]()
    change(proto)
    with pytest.raises(UnreadableModel):
        read(proto)(torch.zeros(5, 3, 4))


def test_a_name_that_is_not_utf8_is_refused():
    content = CASES["lstm"]().SerializeToString().replace(b"LSTM", b"LS\xffM")
    with pytest.raises(UnreadableModel, match="LS\ufffdM"):
        model_of(content, None, {}, LIMIT)


# ------------------------------------------------------------------------------------- other files


def with_external(folder: Path, location: str, **entries: str) -> Path:
    proto = CASES["arithmetic"]()
    first = proto.graph.initializer[0]
    (folder / "weights.bin").write_bytes(b"\x00" * 8 + first.raw_data)
    first.ClearField("raw_data")
    first.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "8", **entries}.items():
        first.external_data.add(key=key, value=value)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


def test_tensors_in_a_file_beside_the_model_are_read(tmp_path: Path):
    x = torch.randn(3, 4)
    found = linnet.read_model(with_external(tmp_path, "weights.bin"))(x)
    torch.testing.assert_close(found, read(CASES["arithmetic"]())(x))


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "link", "", ".", "missing", "a\x00b"])
def test_tensors_elsewhere_are_refused(location: str, tmp_path: Path):
    (tmp_path / "secret").write_bytes(b"\x00" * 1000)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(UnreadableModel, match="such a file must be in the folder of the model"):
        linnet.read_model(with_external(folder, location))


@pytest.mark.parametrize(
    "entries", [{"offset": "9"}, {"offset": "-8"}, {"length": "4"}, {"offset": "9" * 30}]
)
def test_tensors_beyond_the_end_of_a_file_are_refused(entries: dict[str, str], tmp_path: Path):
    with pytest.raises(UnreadableModel, match="the tensor 'w'"):
        linnet.read_model(with_external(tmp_path, "weights.bin", **entries))


class Attack:
    """A pickle of this writes a file when it is loaded."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_no_pickle_is_executed(tmp_path: Path):
    trace = tmp_path / "trace"
    torch.save(Attack(trace), tmp_path / "model.pt")
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Attack(trace)))
    for name in ("model.pt", "model.pkl"):
        with pytest.raises(UnreadableModel, match=r"if you trust it, load it yourself"):
            linnet.read_model(tmp_path / name)
    assert not trace.exists()


def test_a_state_dict_is_listed_and_refused(tmp_path: Path):
    torch.save({"model": torch.nn.LSTM(3, 4).state_dict(), "epoch": 3}, tmp_path / "model.pt")
    with pytest.raises(UnreadableModel, match=r"4 tensors and no model(.|\n)*model.weight_ih_l0 +\(16, 3\)"):
        linnet.read_model(tmp_path / "model.pt")


@pytest.mark.filterwarnings("ignore")
def test_torchscript_is_refused(tmp_path: Path):
    torch.jit.trace(torch.nn.Linear(2, 3), torch.randn(1, 2)).save(tmp_path / "model.pt")
    with pytest.raises(UnreadableModel, match=r"is TorchScript(.|\n)*torch\.onnx\.export"):
        linnet.read_model(tmp_path / "model.pt")


def test_a_compressed_archive_is_refused(tmp_path: Path):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/models/model.json", b" " * 10**6)
    (tmp_path / "model.pt2").write_bytes(made.getvalue())
    with pytest.raises(UnreadableModel, match="it unpacks to more than it has"):
        linnet.read_model(tmp_path / "model.pt2")
