"""Block-diagonal matrices, heads= and input_heads=: kernels, single steps, int8 and saved graphs."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from fused_runs import (
    FLAGS,
    Results,
    Size,
    agree,
    check,
    draw,
    draw_state,
    enliven,
    identical,
    over,
    plans_of,
    run,
    variant,
)
from torch import Tensor, nn

import linnet
from linnet.cpu import forward
from linnet.layers.torch_names import TorchStack
from linnet.program import blocks
from linnet.program.plan import Plan
from linnet.recurrent.init import xavier_uniform_
from linnet.recurrent.projection import Projection
from linnet.run import ops

# Every unit with a recurrent matrix, with the options that change what its matrices read and make.
UNITS: list[tuple[type[linnet.Recurrent], dict[str, Any]]] = [
    (linnet.RAN, {"heads": 2}),
    (linnet.RAN, {"heads": 2, "proj_size": 6}),
    (linnet.ATR, {"heads": 4}),
    (linnet.JANET, {"heads": 2}),
    (linnet.LSTM, {"heads": 4}),
    (linnet.LSTM, {"heads": 2, "proj_size": 6, "peepholes": True}),
    (linnet.LSTM, {"heads": 2, "content": "linear", "input_heads": 4}),
    (linnet.LSTM, {"heads": 4, "norm": "rms", "norm_on": "all"}),
    (linnet.GRU, {"heads": 2}),
    (linnet.GRU, {"heads": 4, "form": "before", "input_heads": 2}),
    (linnet.GRU, {"heads": 2, "form": "ran"}),
    (linnet.RNN, {"heads": 4}),
    (linnet.SCRN, {"heads": 2, "context_size": 4, "input_heads": 2}),
    (linnet.SCRN, {"heads": 2, "context_size": 4, "hidden_reads": "previous"}),
    (linnet.GORU, {"heads": 2}),
    (linnet.SRU, {"input_heads": 4}),
    (linnet.SRU, {"input_heads": 2, "rank": 4}),
    (linnet.QRNN, {"input_heads": 2, "window": 2}),
    (linnet.LRN, {"input_heads": 2, "norm": "layer"}),
]
IDS = ["-".join([unit.__name__, *map(str, options.items())]) for unit, options in UNITS]


def dense_twin(rnn: Any, options: dict[str, Any]) -> Any:
    """The unit without heads, whose matrices have zeros between the blocks of those of `rnn`."""
    others = {name: value for name, value in options.items() if name not in ("heads", "input_heads")}
    if isinstance(rnn, TorchStack):
        others["second_bias"] = False
    twin = type(rnn)(rnn.input_size, rnn.hidden_size, dtype=torch.double, **others)
    own, theirs = dict(rnn.named_modules()), dict(twin.named_modules())
    with torch.no_grad():
        for name, module in theirs.items():
            for key, parameter in module.named_parameters(recurse=False):
                source = own[name]
                same = key == "reduce" or not isinstance(source, Projection) or parameter.dim() == 1
                parameter.copy_(getattr(source, key) if same else source.dense_weight())
    return twin


def compacted(rnn: Any, results: Results) -> Results:
    """The gradients of a dense twin, those of matrices as those of the blocks."""
    made = dict(results)
    for name, module in rnn.named_modules():
        if isinstance(module, Projection) and module.heads > 1:
            key = f"gradient of {name}.{module.weight_name}"
            made[key] = taken_out(made[key], module)
    return made


def taken_out(gradient: Tensor, projection: Projection) -> Tensor:
    sizes, parts = list(projection.parts.values()), []
    for part in gradient.split(sizes):
        squares = zip(part.chunk(projection.heads), range(projection.heads), strict=True)
        parts += [rows.chunk(projection.heads, 1)[head] for rows, head in squares]
    return torch.cat(parts)


@pytest.mark.parametrize("backend", [None, "reference"])
@pytest.mark.parametrize(("unit", "options"), UNITS, ids=IDS)
def test_a_unit_with_heads_is_the_one_with_a_block_diagonal_matrix(unit: Any, options: Any, backend: Any):
    rnn = enliven(unit(8, 12, dtype=torch.double, **options))
    twin = dense_twin(rnn, options)
    assert sum(p.numel() for p in rnn.parameters()) < sum(p.numel() for p in twin.parameters())
    x = draw(5, 3, 8, seed=5).requires_grad_()
    ours = run(backend, rnn, x, lengths=torch.tensor([5, 2, 4]))
    theirs = run(backend, twin, x, lengths=torch.tensor([5, 2, 4]))
    agree(ours, compacted(rnn, theirs), 1e-13)


# ------------------------------------------------------------------------------------- kernels

# Heads narrower than a vector, of whole panels, and of a panel and a rest.
SIZES = [
    Size(1, 1, 4, "nothing"),
    Size(1, 33, 24, "lengths"),
    Size(7, 1, 40, "mask and resets"),
    Size(6, 3, 160, "resets"),
    Size(9, 33, 136, "mask"),
    Size(40, 9, 12, "mask and resets"),
]
SORTS = [
    variant(linnet.LSTM, heads=4),
    variant(linnet.LSTM, square=True, heads=2, input_heads=4),
    variant(linnet.SRU, square=True, input_heads=4),
    variant(linnet.SCRN, square=True, heads=4, context_size=4, input_heads=2),
    variant(linnet.GRU, form="before", heads=4),
    variant(linnet.LSTM, proj_size=8, heads=4),
]


@over("size", SIZES)
@over("sort", SORTS)
def test_kernels_compute_what_the_loop_does(sort: Any, size: Size):
    check(sort, size)


@over("dtype", [torch.float32, torch.bfloat16])
@over("sort", SORTS[1:3])
def test_kernels_in_other_dtypes(sort: Any, dtype: torch.dtype):
    check(sort, SIZES[2], dtype)
    check(sort, SIZES[4], dtype)


@over("kind", FLAGS)
def test_all_kinds_of_flags(kind: str):
    for sort in SORTS[:3]:
        check(sort, Size(11, 4, 20, kind))
        check(sort, Size(12, 33, 40, kind))


def test_masks_on_the_state_and_on_weights():
    for more in ({"state_dropout": 0.4}, {"weight_drop": 0.4, "weight_drop_on": "all"}, {"zoneout": 0.3}):
        rnn = SORTS[1].build(12, **more)
        x = draw(5, 9, 12, seed=5).requires_grad_()
        found = []
        for backend in ("cpu", "reference"):
            torch.manual_seed(0)
            found.append(run(backend, rnn, x))
        agree(*found, 1e-12)


def test_resets_to_a_state():
    rnn = SORTS[1].build(12)
    x = draw(5, 3, 12, seed=5).requires_grad_()
    resets = torch.rand(5, 3, generator=torch.Generator().manual_seed(0)) < 0.4
    start = linnet.units.lstm.LSTMState(*(draw(1, 3, 12, seed=seed) for seed in (6, 7)))
    found = [run(backend, rnn, x, resets=resets, reset_state=start) for backend in ("cpu", "reference")]
    agree(*found, 1e-12)


@over("sort", SORTS[:2])
def test_threads_that_share_channels_compute_the_same_bits(sort: Any, monkeypatch):
    """Of heads that are narrower than the channels of a thread, and wider; with blocks of two heads."""
    monkeypatch.setattr(forward, "WORTH_SHARING", 1)
    threads = torch.get_num_threads()
    for size in (24, 160, 264):
        rnn = sort.build(size, torch.float32)
        x = draw(9, 2, rnn.input_size, seed=5, dtype=torch.float32).requires_grad_()
        found = []
        try:
            for count in (1, 2, 3):
                torch.set_num_threads(count)
                found.append(run("cpu", rnn, x))
        finally:
            torch.set_num_threads(threads)
        identical(found[0], found[1])
        identical(found[0], found[2])
        wide = copy.deepcopy(rnn).double()
        agree(found[0], run("reference", wide, x.double(), draw_state(wide, 2)), 1e-5)


def test_a_frozen_module_with_heads():
    for sort in (SORTS[1], SORTS[2]):
        rnn = sort.build(12, torch.float32).eval()
        x = draw(9, 2, 12, seed=5, dtype=torch.float32)
        with torch.no_grad():
            expected = rnn(x)
            frozen = linnet.freeze(rnn)(x)
        torch.testing.assert_close(frozen, expected, rtol=1e-6, atol=1e-6)


def test_modules_with_other_heads_share_no_packed_matrix():
    """Two units with one plan, whose input matrices are of the same shape."""
    narrow, wide = (enliven(linnet.SRU(size, 6, input_heads=heads)) for size, heads in ((6, 1), (12, 2)))
    for rnn in (narrow, wide, narrow, wide):
        x = draw(9, 4, rnn.input_size, seed=5, dtype=torch.float32)
        with linnet.backend("reference"):
            expected, _ = rnn(x)
        torch.testing.assert_close(rnn(x)[0], expected, rtol=1e-5, atol=1e-6)


def test_no_call_takes_the_loop():
    for sort in SORTS:
        rnn, x = sort.build(8, torch.float32), torch.randn(5, 2, 8 if sort.square else 7)
        assert linnet.explain(rnn, x).ways == ["scan"]
        with torch.no_grad():
            assert linnet.explain(rnn, x[:1]).ways == ["step"]
        with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
            assert linnet.explain(rnn, x).ways == ["operation"]


def test_norms_of_products_with_heads_have_kernels():
    for unit in (linnet.GRU, linnet.LSTM):
        rnn = variant(unit, norm="layer", norm_on="all", heads=2).build(8)
        x = draw(5, 3, rnn.input_size, seed=5).requires_grad_()
        assert linnet.explain(rnn, x).ways == ["scan"]
        agree(run("cpu", rnn, x), run("reference", rnn, x), 1e-11)


def test_second_derivatives():
    rnn = SORTS[1].build(4)
    x = draw(2, 2, 4, seed=5).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: rnn(x)[0], (x,))


def test_a_users_unit_with_heads_has_kernels():
    class HeadedCell(linnet.Cell):
        recurrence = {"recurrent": "h"}

        def __init__(self, input_size: int, hidden_size: int, bias: bool = True, heads: int = 2, **more: Any):
            super().__init__(input_size, hidden_size, {"h": hidden_size})
            where = {name: more.pop(name, None) for name in ("device", "dtype")}
            self.input = Projection(input_size, {"a": hidden_size}, bias, **where, **more)
            self.recurrent = Projection(hidden_size, {"r": hidden_size}, input_heads=heads, **where)
            self.second = Projection(hidden_size, {"s": hidden_size}, input_heads=heads, **where)

        def step(self, a: Tensor, r: Tensor, h: Tensor) -> Any:
            h = torch.tanh(a + self.second(torch.sigmoid(a + r) * h)["s"])
            return h, {"h": h}

    class Headed(linnet.Recurrent, cell=HeadedCell):
        """Its second matrix is multiplied within the step."""

    rnn = enliven(Headed(6, 8, dtype=torch.double))
    x = draw(5, 3, 6, seed=5).requires_grad_()
    assert linnet.explain(rnn, x).ways == ["scan"]
    agree(run("cpu", rnn, x), run("reference", rnn, x), 1e-12)


# --------------------------------------------------------------------------------------- int8


@pytest.mark.parametrize("activations", [True, False])
@pytest.mark.parametrize(
    ("unit", "options"), [UNITS[i] for i in (0, 4, 8, 9, 12, 15)], ids=[IDS[i] for i in (0, 4, 8, 9, 12, 15)]
)
def test_int8_kernels_compute_what_the_loop_does(unit: Any, options: Any, activations: bool):
    rnn = enliven(unit(8, 24, **options)).eval()
    small = linnet.quantize(rnn, activations=activations)
    matrix = small.first_cell.input
    assert matrix.weight_int8.shape == rnn.first_cell.input.weight.shape
    for steps, batch in ((6, 5), (1, 3), (7, 1)):
        x = draw(steps, batch, 8, seed=5, dtype=torch.float32)
        with torch.no_grad():
            with linnet.backend("reference"):
                expected, _ = small(x)
            found, _ = small(x)
            # A number that is rounded the other way changes a state by up to a step of int8.
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-2 if activations else 1e-5)
            assert (found - expected).abs().median() < 1e-6
            torch.testing.assert_close(found, rnn(x)[0], rtol=0, atol=0.1)


def test_each_head_is_rounded_with_a_scale_of_its_own():
    """A block-diagonal product is the products of its blocks, to the last bit."""
    weight, x = draw(12, 4, seed=1).float(), draw(5, 8, seed=2).float()
    x[:, 4:] *= 1000
    numbers, scales = linnet.recurrent.int8.quantised(weight)
    made = linnet.recurrent.int8.product(x, numbers, scales, None, heads=2, parts=3)
    for part in range(3):
        for head in range(2):
            rows = slice(4 * part + 2 * head, 4 * part + 2 * head + 2)
            alone = linnet.recurrent.int8.product(x[:, 4 * head : 4 * head + 4], numbers[rows], scales[rows])
            assert torch.equal(made[:, rows], alone)


# ---------------------------------------------------------------------------------- saved graphs


def text_of(sort: Any) -> tuple[str, Plan]:
    plan = plans_of(sort.build(8))[0].plan
    return plan.text, plan


def test_a_plan_is_read_from_its_text():
    for sort in (SORTS[0], SORTS[4]):
        text, plan = text_of(sort)
        read = Plan.read(text)
        assert (read.heads, read.products, read.traced.inner) == (
            plan.heads,
            plan.products,
            plan.traced.inner,
        )
        assert 4 in read.heads


@pytest.mark.parametrize("heads", [0, -2, 1.5, True, "2", None, [2]])
def test_heads_that_are_no_number_are_refused(heads: Any):
    value = json.loads(text_of(SORTS[0])[0])
    value["products"][0][2] = heads
    with pytest.raises(ValueError, match=r"heads of a product must be a number from 1 on"):
        Plan.read(json.dumps(value))


def test_a_step_that_is_not_elementwise_has_no_heads_in_its_text():
    """Its products are those of single blocks; kernels would read beyond the matrix of one with heads."""
    rnn = enliven(linnet.LSTM(4, 8, heads=2, norm="rms", norm_on="all", dtype=torch.double))
    value = json.loads(plans_of(rnn)[0].plan.text)
    assert "sizes" in value
    value["inner"][0].append(2)
    with pytest.raises(ValueError, match="several parts or heads"):
        Plan.read(json.dumps(value))


def test_a_registered_operation_refuses_channels_that_heads_do_not_divide():
    """Kernels would read beyond the matrix."""
    text, plan = text_of(SORTS[0])
    states = [torch.zeros(2, 6, dtype=torch.double) for _ in plan.traced.states]
    operands = [torch.zeros(3, 2, 24, dtype=torch.double), *states, torch.zeros(24, 1, dtype=torch.double)]
    with pytest.raises(ValueError, match=r"cannot cut \[6\] channels into 4 heads"):
        ops.scan_op(text, operands, None, None, False)


def test_a_compiled_module_and_its_gradients():
    rnn = SORTS[1].build(8)
    x = draw(4, 3, 8, seed=5).requires_grad_()
    compiled = copy.deepcopy(rnn)
    compiled.forward = torch.compile(compiled.forward, backend="aot_eager", fullgraph=True)
    y, (h, c) = compiled(x)
    expected, (h2, c2) = rnn(x)
    torch.testing.assert_close((y, h, c), (expected, h2, c2), rtol=1e-13, atol=1e-13)
    ours = torch.autograd.grad(y.sin().sum(), [x, *compiled.parameters()])
    theirs = torch.autograd.grad(expected.sin().sum(), [x, *rnn.parameters()])
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------- a matrix that does not fit


def test_a_matrix_of_other_heads_is_an_error():
    """Also one whose shape a dense matrix, or one with fewer heads, would have."""
    x = torch.randn(3, 2, 8)
    for options, shape in (({"heads": 2}, (32, 8)), ({"heads": 2}, (32, 2)), ({}, (32, 4))):
        rnn = linnet.LSTM(8, 8, **options)
        rnn(x)
        owner, name = (rnn.first_cell.recurrent, "weight_hh") if options else (rnn, "weight_hh_l0")
        setattr(owner, name, nn.Parameter(torch.zeros(shape)))
        for grad in (True, False):
            with torch.set_grad_enabled(grad), pytest.raises(RuntimeError):
                rnn(x)
            with torch.set_grad_enabled(grad), pytest.raises(RuntimeError):
                rnn(x[:1])


# -------------------------------------------------------------------------------- construction


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: linnet.LSTM(6, 8, heads=3), ValueError, r"3 heads .* has 8 channels; .* divides 8"),
        (lambda: linnet.LSTM(6, 8, input_heads=4), ValueError, r"the input has 6 channels"),
        (lambda: linnet.LSTM(6, 8, heads=4, proj_size=6), ValueError, r"the input has 6 channels"),
        (lambda: linnet.SRU(8, 9, input_heads=2), ValueError, r"skip has 9 channels"),
        (lambda: linnet.GRU(8, 8, heads=0), ValueError, "the number of heads must be at least 1; got 0"),
        (lambda: linnet.GRU(8, 8, heads=2.0), TypeError, "the number of heads must be an int; got 2.0"),
        (lambda: linnet.SRU(8, 8, heads=2), TypeError, "no option 'heads'"),
    ],
)
def test_heads_that_cannot_be(build: Any, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        build()


def test_the_number_of_weights():
    """4 (H^2 / heads) + 4 H D + 4 H for LSTM, and likewise for the others."""
    assert linnet.LSTM(6, 8, heads=2).first_cell.recurrent.weight.shape == (32, 4)
    assert linnet.LSTM(6, 8, input_heads=2).first_cell.input.weight.shape == (32, 3)
    count = sum(p.numel() for p in linnet.LSTM(6, 8, heads=4).parameters())
    assert count == 4 * 8 * 8 // 4 + 4 * 8 * 6 + 4 * 8


def test_each_head_starts_as_a_matrix_of_its_own():
    cell = linnet.JANETCell(8, 12, heads=3)
    for name in cell.recurrent.parts:
        for block in cell.recurrent.blocks_of(name):
            torch.testing.assert_close(block @ block.T, torch.eye(4))
    identity = linnet.RNN(8, 12, heads=3, init="identity").first_cell.recurrent
    assert torch.equal(identity.dense_weight(), torch.eye(12))


def test_xavier_of_one_head_is_that_of_torch():
    dense, headed = (Projection(8, {"a": 6, "b": 6}, input_heads=heads) for heads in (1, 2))
    torch.manual_seed(3)
    xavier_uniform_(dense)
    torch.manual_seed(3)
    assert torch.equal(dense.weight, nn.init.xavier_uniform_(torch.empty(12, 8)))
    xavier_uniform_(headed)
    # Of each head: 4 inputs and 6 outputs.
    assert 0.9 < headed.weight.abs().max() / (6 / 10) ** 0.5 <= 1


def test_torch_has_no_such_matrices():
    rnn = linnet.LSTM(4, 6, heads=2)
    with pytest.raises(ValueError, match="no module of torch computes"):
        rnn.torch_state_dict()
    assert not hasattr(rnn, "weight_hh_l0")
    assert not hasattr(linnet.LSTM(4, 6, input_heads=2), "weight_ih_l0")
    with pytest.raises(RuntimeError, match="Missing key"):
        rnn.load_state_dict(nn.LSTM(4, 6).state_dict())


def test_blocks_of_parts_of_different_sizes():
    """As the statistics and the context of a unit may be."""
    projection = enliven(Projection(6, {"a": 2, "b": 4}, ("b",), input_heads=2, dtype=torch.double))
    x = draw(3, 6, seed=1)
    expected = x @ projection.dense_weight().T + torch.cat([torch.zeros(2), projection.bias])
    torch.testing.assert_close(projection.joint(x), expected, rtol=1e-13, atol=1e-13)
    assert torch.equal(projection.dense_weight()[0, 3:], torch.zeros(3, dtype=torch.double))
    assert str(projection).startswith("Projection(\n  a=2, b=4, heads=2")


def test_transposed_blocks_and_gradients_are_those_of_autograd():
    weight, x = draw(12, 4, seed=1).requires_grad_(), draw(5, 8, seed=2).requires_grad_()
    y, above = blocks.linear(x, weight, None, 2, 3), draw(5, 12, seed=3)
    dx, dw = torch.autograd.grad(y, (x, weight), above)
    torch.testing.assert_close(blocks.input_gradient(above, weight, 2, 3), dx, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(blocks.weight_gradient(above, x, 2, 3), dw, rtol=1e-13, atol=1e-13)
    first = blocks.transposed(weight, 2, 3)[:4]
    assert torch.equal(first, weight[:2].T)
