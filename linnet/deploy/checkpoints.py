"""Load weights of other implementations: of torch.nn, of packages, and of authors' code.

    rnn = linnet.SRU(300, 128, num_layers=2)
    linnet.load_foreign(rnn, torch.load("sru.pt"), source="sru")

Each source has one function, which computes the parameters of a Linnet stack, or of a block around one, from
the tensors of the source.
Nothing is loaded unless everything fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from linnet.base.options import choose
from linnet.blocks.griffin import GriffinBlock
from linnet.blocks.xlstm import SLSTMBlock
from linnet.layers.torch_names import TorchStack
from linnet.recurrent.recurrent import Recurrent
from linnet.units import GRU, LRN, LSTM, LTC, NRU, RGLRU, RNN, SRU, CfC, MinGRU, MinLSTM


class Foreign:
    """A state dict of another implementation; collects missing keys, wrong shapes and unused keys."""

    def __init__(self, tensors: Mapping[str, Tensor]):
        self.tensors = dict(tensors)
        self.unused = set(tensors)
        self.problems: list[str] = []

    def take(self, key: str, *shape: int) -> Tensor:
        self.unused.discard(key)
        if key not in self.tensors:
            self.problems.append(f"missing {key}, expected of shape {shape}")
        elif tuple(self.tensors[key].shape) != shape:
            self.problems.append(f"{key} has shape {tuple(self.tensors[key].shape)}, expected {shape}")
        else:
            return self.tensors[key]
        return torch.zeros(shape)

    def check_scale(self, key: str, cell: Any) -> None:
        """Check that alpha of the skip, which is not a parameter in Linnet, is the one of the options."""
        self.unused.discard(key)
        if key in self.tensors and cell.skip_from is not None:
            scale = float(self.tensors[key])
            if abs(scale - cell.alpha) > 1e-5:
                self.problems.append(
                    f"{key} is {scale:.6g}, but this SRU skips with alpha = {cell.alpha:.6g}; "
                    "see its options rescale and highway_bias"
                )

    def ignore(self, *keys: str) -> None:
        self.unused.difference_update(keys)

    def check(self, source: str, rnn: nn.Module) -> None:
        problems = [*self.problems, *(f"{key} is not used" for key in sorted(self.unused))]
        if problems:
            listed = "\n  ".join(problems)
            unit = f"{type(rnn).__name__}({rnn.extra_repr()})"
            raise ValueError(f"this is no {source!r} state dict for {unit}:\n  {listed}")


def load_foreign(
    rnn: nn.Module, state_dict: Mapping[str, Tensor], source: str, *, normalize_after: bool | None = None
) -> None:
    """Load a state dict of another implementation, of which `source` is the name.

    sru     the `sru` package's SRU, any depth, direction, low rank or layer norm. If its layer norms fit both
            before and after each layer, pass the `normalize_after` it was built with; Linnet has the norm
            before each layer, normalize_after=False
    torch   nn.LSTM, nn.GRU or nn.RNN into LSTM, GRU(form="after") or RNN
    nru     the NRU authors' NRUCell, or their NRU model (whose output layer is left out)
    lrn     the LRN authors' language-model cell, or their stack of cells

    mingru_pytorch   minGRU or minLSTM of this package, or a ModuleList of them as layers, into MinGRU or
                     MinLSTM with bias=False, and with proj_size if theirs has an output product
    minrnns          minGRU or minLSTM of the authors' code, or a ModuleList of them, into MinGRU or MinLSTM
                     with learned_start=True and proj_size; their MinLSTM has normalised=False
    pufferlib        MinGRU of PufferLib into MinGRU(bias=False, highway=True)
    xlstm            the `xlstm` package's sLSTMLayer into SLSTMBlock. Its two swapped names are put right
    recurrentgemma   its torch RGLRU into RGLRU, or its RecurrentBlock into GriffinBlock
    ncps             the torch CfC or LTC of `ncps`, one of their cells, or a ModuleList of them as layers,
                     into CfC or LTC. An LTC of theirs has implicit=True unless it was built with
                     implicit_param_constraints=False, which its state dict does not tell
    """
    if source == "sru" and isinstance(rnn, SRU):
        check_norm_position(rnn, state_dict, normalize_after)
    rnn.load_state_dict(convert(rnn, state_dict, source))


def check_norm_position(
    rnn: Recurrent, state_dict: Mapping[str, Tensor], normalize_after: bool | None
) -> None:
    """Raise if the package's layer norms come after each layer, or if the sizes do not exclude that."""
    if normalize_after:
        raise ValueError(
            "normalize_after=True, a layer norm after each layer, has no counterpart in Linnet's SRU; "
            'its prenorm="layer" is the package\'s normalize_after=False'
        )
    norms = any(".layer_norm." in key for key in state_dict)
    sizes = {rnn.input_size, *(rnn.layer_output_size(layer) for layer in range(rnn.num_layers))}
    if norms and normalize_after is None and len(sizes) == 1:
        raise ValueError(
            "the layer norms of this state dict fit before and after each layer, and it does not contain the "
            "`sru` package's normalize_after; if it was False, pass normalize_after=False"
        )


def convert(rnn: nn.Module, state_dict: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Return the state dict of `rnn` that corresponds to one of another implementation."""
    choose("source", source, SOURCES)
    units, converter = SOURCES[source]
    if not isinstance(rnn, units):
        names = " or ".join(unit.__name__ for unit in units)
        is_ours = isinstance(rnn, (Recurrent, GriffinBlock, SLSTMBlock))
        got = type(rnn).__name__ if is_ours else f"{type(rnn)}, which is not linnet's"
        raise TypeError(f"source {source!r} has weights of {names}; got {got}")
    foreign = Foreign(state_dict)
    converted = converter(rnn, foreign)
    ours = {name: tuple(tensor.shape) for name, tensor in rnn.state_dict().items()}
    theirs = {name: tuple(tensor.shape) for name, tensor in converted.items()}
    for name in ours | theirs:
        if ours.get(name) != theirs.get(name):
            foreign.problems.append(f"{name} needs shape {ours.get(name)}, and it has {theirs.get(name)}")
    foreign.check(source, rnn)
    return converted


def from_sru(rnn: Recurrent, foreign: Foreign) -> dict[str, Tensor]:
    """Convert `weight`, [in, directions, hidden, k] with k = candidate, forget, reset and possibly skip."""
    converted = {}
    for number in range(rnn.num_layers):
        many, size = rnn.num_directions, rnn.hidden_size
        cells = rnn.cells[number * many : (number + 1) * many]
        first = cells[0].input
        order = ("u", "f", "r", "skip")[: len(first.parts)]
        rows, prefix = first.weight.shape[1], f"rnn_lst.{number}."
        weight = foreign.take(f"{prefix}weight", rows, many * size * len(order))
        weight = weight.view(rows, many, size, len(order))
        v = foreign.take(f"{prefix}weight_c", 2 * many * size).view(2, many, size)
        if cells[0].v_f is None and v.any():
            foreign.problems.append(f"{prefix}weight_c is not 0, but the gates of this SRU do not read c")
        if first.bias is not None:
            bias = foreign.take(f"{prefix}bias", 2 * many * size).view(2, many, size)
        foreign.check_scale(f"{prefix}scale_x", cells[0])
        for direction, cell in enumerate(cells):
            ours = f"directions.{number * many + direction}.cell."
            parts = [weight[:, direction, :, order.index(name)].T for name in cell.input.parts]
            converted[f"{ours}input.weight"] = torch.cat(parts)
            if cell.input.bias is not None:
                converted[f"{ours}input.bias"] = bias[:, direction].reshape(-1)
            if cell.v_f is not None:
                converted[f"{ours}v_f"], converted[f"{ours}v_r"] = v[:, direction]
            if first.reduce is not None:
                low = foreign.take(f"{prefix}weight_proj", cell.input_size, rows)
                converted[f"{ours}input.reduce"] = low.T
            for name, _ in first.prenorm.named_parameters():
                norm = foreign.take(f"{prefix}layer_norm.{name}", cell.input_size)
                converted[f"{ours}input.prenorm.{name}"] = norm
    return converted


def from_torch(rnn: Recurrent, foreign: Foreign) -> dict[str, Tensor]:
    """Take what torch's module has: LSTM, GRU and RNN have the same parameters."""
    if not isinstance(rnn, TorchStack) or not rnn.first_cell.has_torch_layout:
        foreign.problems.append(f"no module of torch has the matrices of this {type(rnn).__name__}")
        return {}
    pairs = zip(rnn._flat_weights_names, rnn._flat_weights, strict=True)
    return {name: foreign.take(name, *weight.shape) for name, weight in pairs}


def prefix_of(foreign: Foreign, rnn: Recurrent, key: str, prefix: str) -> str:
    """Return the prefix of the keys: "" for a single cell, `prefix` for a stack."""
    problem = "stacks of this source have one direction"
    if rnn.bidirectional and problem not in foreign.problems:
        foreign.problems.append(problem)
    return "" if key in foreign.tensors and rnn.num_layers == 1 else prefix


def from_nru(rnn: Recurrent, foreign: Foreign) -> dict[str, Tensor]:
    """Convert nn.Linear layers over [x; h; m] and, for the heads, over [h; m]."""
    converted = {}
    foreign.ignore("_W_h2o", "_b_o")
    for number, cell in enumerate(rnn.cells):
        prefix = prefix_of(foreign, rnn, "hmi2h.weight", f"_list_of_modules.{number}.")
        ours, size = f"directions.{number}.cell.", cell.hidden_size
        state_size = size + cell.memory_size
        weight = foreign.take(f"{prefix}hmi2h.weight", size, cell.input_size + state_size)
        converted[f"{ours}input.weight"] = weight[:, : cell.input_size]
        converted[f"{ours}recurrent.weight"] = weight[:, cell.input_size :]
        if rnn.bias:
            converted[f"{ours}input.bias"] = foreign.take(f"{prefix}hmi2h.bias", size)
        theirs = {"alpha": "alpha", "beta": "beta", "write": "v_alpha", "erase": "v_beta"}
        kinds = {"weight": (state_size,), "bias": ()} if rnn.bias else {"weight": (state_size,)}
        for kind, shape in kinds.items():
            heads = [
                foreign.take(f"{prefix}hm2{theirs[name]}.{kind}", wide, *shape)
                for name, wide in cell.heads.parts.items()
            ]
            converted[f"{ours}heads.{kind}"] = torch.cat(heads)
        for name, _ in cell.norm.named_parameters():
            converted[f"{ours}norm.{name}"] = foreign.take(f"{prefix}_ln_h.{name}", size)
    return converted


def from_lrn(rnn: Recurrent, foreign: Foreign) -> dict[str, Tensor]:
    """Convert `_W`, [in, 3 hidden], whose columns are input gate, forget gate and value."""
    converted = {}
    for number, cell in enumerate(rnn.cells):
        prefix = prefix_of(foreign, rnn, "_W", f"cell_{number}.")
        ours = f"directions.{number}.cell.input."
        converted[f"{ours}weight"] = foreign.take(f"{prefix}_W", cell.input_size, 3 * cell.hidden_size).T
        if rnn.bias:
            converted[f"{ours}bias"] = foreign.take(f"{prefix}_W_b", 3 * cell.hidden_size)
    return converted


def from_min(rnn: Recurrent, foreign: Foreign, own_name: bool) -> dict[str, Tensor]:
    """Convert one Linear for candidate and gates, in our order, one for the output, and the learned start."""
    gates = "to_hidden_and_f_i_gate" if own_name and isinstance(rnn, MinLSTM) else "to_hidden_and_gate"
    converted = {}
    for number, direction in enumerate(rnn.directions):
        prefix = prefix_of(foreign, rnn, f"{gates}.weight", f"{number}.")
        products = {f"cell.input.{name}": f"{gates}.{name}" for name in ("weight", "bias")}
        products |= {f"projection.{name}": f"to_out.{name}" for name in ("weight", "bias")}
        products["cell.start_h"] = "init_hidden_state"
        for ours, parameter in direction.named_parameters():
            theirs = products.get(ours)
            if theirs is not None:
                converted[f"directions.{number}.{ours}"] = foreign.take(f"{prefix}{theirs}", *parameter.shape)
    return converted


def from_pufferlib(rnn: Recurrent, foreign: Foreign) -> dict[str, Tensor]:
    """Convert `weight`, [3 hidden, hidden], whose rows are candidate, gate and highway, as ours."""
    prefix_of(foreign, rnn, "", "")
    return {
        f"directions.{number}.cell.input.weight": foreign.take(
            f"layers.{number}.weight", *cell.input.weight.shape
        )
        for number, cell in enumerate(rnn.cells)
    }


def from_xlstm(block: SLSTMBlock, foreign: Foreign) -> dict[str, Tensor]:
    """Convert a sLSTMLayer: blocks [heads, out, in], and those of h with the gates within each head."""
    size, heads = block.size, block.norm.heads
    within = size // heads
    # Their forward calls `fgate` for the input gate, and `igate` for the forget gate.
    gates = [
        foreign.take(f"{name}.weight", heads, within, within) for name in ("fgate", "igate", "zgate", "ogate")
    ]
    of_h = foreign.take("slstm_cell._recurrent_kernel_", heads, 4 * within, within)
    ours = "rnn.directions.0.cell."
    converted = {
        f"{ours}input.weight": torch.cat([gate.flatten(0, 1) for gate in gates]),
        f"{ours}input.bias": foreign.take("slstm_cell._bias_", 4 * size),
        f"{ours}recurrent.weight": of_h.unflatten(1, (4, within)).transpose(0, 1).flatten(0, 2),
        "norm.weight": foreign.take("group_norm.weight", size),
    }
    if block.convolution is not None:
        width = block.convolution.width
        converted["convolution.weight"] = foreign.take("conv1d.conv.weight", size, 1, width)[:, 0].T
        converted["convolution.bias"] = foreign.take("conv1d.conv.bias", size)
    return converted


def from_recurrentgemma(module: RGLRU | GriffinBlock, foreign: Foreign) -> dict[str, Tensor]:
    if not isinstance(module, GriffinBlock):
        return from_rg_lru(module, foreign, "")
    converted = {
        f"rnn.{name}": tensor for name, tensor in from_rg_lru(module.rnn, foreign, "rg_lru.").items()
    }
    for name, linear in module.named_children():
        if isinstance(linear, nn.Linear):
            converted[f"{name}.weight"] = foreign.take(f"{name}.weight", *linear.weight.shape)
            converted[f"{name}.bias"] = foreign.take(f"{name}.bias", *linear.bias.shape)
    converted["convolution.weight"] = foreign.take("conv_1d.w", *module.convolution.weight.shape)
    converted["convolution.bias"] = foreign.take("conv_1d.b", module.lru_width)
    return converted


def from_rg_lru(rnn: RGLRU, foreign: Foreign, prefix: str) -> dict[str, Tensor]:
    """Convert gates whose blocks are [heads, in, out]."""
    if len(rnn.cells) > 1:
        foreign.problems.append("an RGLRU of this source is one layer in one direction")
    size, heads = rnn.hidden_size, rnn.cells[0].input.heads
    within, gates = size // heads, [f"{prefix}{name}" for name in ("input_gate", "a_gate")]
    blocks = [foreign.take(f"{gate}.w", heads, within, within).transpose(1, 2) for gate in gates]
    ours = "directions.0.cell."
    converted = {
        f"{ours}input.weight": torch.cat([block.flatten(0, 1) for block in blocks]),
        f"{ours}a_param": foreign.take(f"{prefix}a_param", size),
    }
    if rnn.bias:
        biases = [foreign.take(f"{gate}.b", heads, within).flatten() for gate in gates]
        converted[f"{ours}input.bias"] = torch.cat(biases)
    return converted


def from_ncps(rnn: Recurrent, foreign: Foreign) -> dict[str, Tensor]:
    """Convert layers, whose names start with `rnn_cell.`, or a cell."""
    first, convert_cell = ("gleak", from_ltc_cell) if isinstance(rnn, LTC) else ("ff1.weight", from_cfc_cell)
    cell_prefix = "" if first in foreign.tensors else "rnn_cell."
    converted: dict[str, Tensor] = {}
    for number, direction in enumerate(rnn.directions):
        prefix = prefix_of(foreign, rnn, f"{cell_prefix}{first}", f"{number}.")
        inner = convert_cell(direction.cell, foreign, f"{prefix}{cell_prefix}")
        if getattr(direction.cell, "mixed_memory", False):
            inner = with_memory(inner, direction.cell, foreign, f"{prefix}lstm.")
        converted |= {f"directions.{number}.cell.{name}": tensor for name, tensor in inner.items()}
        for name, parameter in direction.named_parameters():
            if name.startswith("projection."):
                theirs = name.replace("projection", f"{prefix}fc")
                converted[f"directions.{number}.{name}"] = foreign.take(theirs, *parameter.shape)
    return converted


def from_ltc_cell(cell: Any, foreign: Foreign, prefix: str) -> dict[str, Tensor]:
    """Convert parameters of the same names, except those of the input; their masks are parameters, too."""
    converted = {}
    for name, parameter in cell.named_parameters():
        if name == "input.weight":
            converted[name] = foreign.take(f"{prefix}input_w", cell.input_size)[:, None]
        else:
            theirs = "input_b" if name == "input.bias" else name
            converted[name] = foreign.take(f"{prefix}{theirs}", *parameter.shape)
    for name, w in (("mask", cell.w), ("sensory_mask", cell.sensory_w)):
        theirs = name.replace("mask", "sparsity_mask")
        mask = foreign.take(f"{prefix}{theirs}", *w.shape)
        if getattr(cell, name) is not None:
            converted[name] = mask
        elif f"{prefix}{theirs}" in foreign.tensors and not mask.all():
            foreign.problems.append(f"{prefix}{theirs} has zeros; build the LTC with wiring=")
    return converted


NCPS_HEADS = {"a1": "ff1", "a2": "ff2", "ta": "time_a", "tb": "time_b"}


def from_cfc_cell(cell: Any, foreign: Foreign, prefix: str) -> dict[str, Tensor]:
    """Convert Linear layers, of which the first reads [x; h]."""
    size, hidden = cell.input_size, cell.hidden_size
    names = [theirs for ours, theirs in NCPS_HEADS.items() if ours in (cell.heads or cell.input).parts]
    width = cell.backbone_units if cell.backbone_layers else size + hidden
    heads = linear_layers(foreign, cell, [f"{prefix}{name}" for name in names], hidden, width)
    layers = backbone_of(foreign, f"{prefix}backbone.", cell)
    first = layers[0] if layers else heads
    converted = {f"input.{kind}": tensor for kind, tensor in first.items()}
    converted["input.weight"], converted["recurrent.weight"] = first["weight"].split([size, hidden], 1)
    for number, layer in enumerate(layers[1:]):
        converted |= {f"backbone.{number}.{kind}": tensor for kind, tensor in layer.items()}
    if layers:
        converted |= {f"heads.{kind}": tensor for kind, tensor in heads.items()}
    if cell.mode == "pure":
        for ours, theirs in (("w_tau", "w_tau"), ("a", "A")):
            converted[ours] = foreign.take(f"{prefix}{theirs}", 1, hidden).flatten()
    return converted


def with_memory(converted: dict[str, Tensor], cell: Any, foreign: Foreign, prefix: str) -> dict[str, Tensor]:
    """Add the LSTM of mixed memory; its gates are the first that read x."""
    size, hidden = cell.input_size, cell.hidden_size
    gates = linear_layers(foreign, cell, [f"{prefix}input_map"], 4 * hidden, size)
    added = {f"input.{kind}": torch.cat([gates[kind], converted[f"input.{kind}"]]) for kind in gates}
    of_h = foreign.take(f"{prefix}recurrent_map.weight", 4 * hidden, hidden)
    return {**converted, **added, "inner.weight": converted["recurrent.weight"], "recurrent.weight": of_h}


def linear_layers(
    foreign: Foreign, cell: Any, names: Sequence[str], rows: int, columns: int
) -> dict[str, Tensor]:
    """The weights and, if the cell has biases, the biases of several Linear layers as those of one."""
    shapes = {"weight": (rows, columns), "bias": (rows,)}
    kinds = ("weight",) if cell.input.bias is None else ("weight", "bias")
    return {
        kind: torch.cat([foreign.take(f"{name}.{kind}", *shapes[kind]) for name in names]) for kind in kinds
    }


def backbone_of(foreign: Foreign, prefix: str, cell: Any) -> list[dict[str, Tensor]]:
    """The layers of the backbone: between these are activations, and dropouts if theirs has them."""
    count, units = cell.backbone_layers, cell.backbone_units
    found = {key[len(prefix) :].split(".")[0] for key in foreign.tensors if key.startswith(prefix)}
    # Without dropouts, every other module is a Linear.
    places = sorted(found, key=int) if len(found) == count else [str(2 * number) for number in range(count)]
    widths = [cell.input_size + cell.hidden_size, *[units] * count]
    return [
        linear_layers(foreign, cell, [f"{prefix}{place}"], units, width)
        for place, width in zip(places, widths, strict=False)
    ]


Converter = Callable[[Any, Foreign], dict[str, Tensor]]
SOURCES: dict[str, tuple[tuple[type[nn.Module], ...], Converter]] = {
    "sru": ((SRU,), from_sru),
    "torch": ((LSTM, GRU, RNN), from_torch),
    "nru": ((NRU,), from_nru),
    "lrn": ((LRN,), from_lrn),
    "mingru_pytorch": ((MinGRU, MinLSTM), partial(from_min, own_name=True)),
    "minrnns": ((MinGRU, MinLSTM), partial(from_min, own_name=False)),
    "pufferlib": ((MinGRU,), from_pufferlib),
    "xlstm": ((SLSTMBlock,), from_xlstm),
    "ncps": ((CfC, LTC), from_ncps),
    "recurrentgemma": ((RGLRU, GriffinBlock), from_recurrentgemma),
}
