"""The units as type checkers and editors see them.

Written by `python -m tools.stubs`; a test compares it with the units. The subscript of a stack is the type
of its state: linnet.SRU is linnet.SRU[Tensor], and linnet.SRU[tuple[Tensor, Tensor]] with as_lstm=True. That
of a cell is the type of what it returns.
"""

# fmt: off
# ruff: noqa

from collections.abc import Sequence
from typing import Generic, Literal, overload

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.types import Device
from typing_extensions import TypeVar

from linnet.recurrent.cell import Cell
from linnet.recurrent.recurrent import Recurrent
from linnet.units.ltc import Matrix
from linnet.recurrent.pairs import ComplexState
from linnet.units.atr import ATR as _ATR, ATRCell as _ATRCell
from linnet.units.cfc import CfCState, CfC as _CfC, CfCCell as _CfCCell
from linnet.units.cornn import CoRNNState, CoRNN as _CoRNN, CoRNNCell as _CoRNNCell
from linnet.units.elrn import ELRN as _ELRN, ELRNCell as _ELRNCell
from linnet.units.eurnn import EURNN as _EURNN, EURNNCell as _EURNNCell
from linnet.units.fastgrnn import FastGRNN as _FastGRNN, FastGRNNCell as _FastGRNNCell
from linnet.units.fastrnn import FastRNN as _FastRNN, FastRNNCell as _FastRNNCell
from linnet.units.glrn import GLRN as _GLRN, GLRNCell as _GLRNCell
from linnet.units.goru import GORU as _GORU, GORUCell as _GORUCell
from linnet.units.gru import GRUState, GRU as _GRU, GRUCell as _GRUCell
from linnet.units.hgrn import HGRN as _HGRN, HGRNCell as _HGRNCell
from linnet.units.indrnn import IndRNN as _IndRNN, IndRNNCell as _IndRNNCell
from linnet.units.janet import JANET as _JANET, JANETCell as _JANETCell
from linnet.units.lem import LEMState, LEM as _LEM, LEMCell as _LEMCell
from linnet.units.ligru import LiGRU as _LiGRU, LiGRUCell as _LiGRUCell
from linnet.units.linoss import LinOSSState, LinOSS as _LinOSS, LinOSSCell as _LinOSSCell
from linnet.units.lrn import LRN as _LRN, LRNCell as _LRNCell
from linnet.units.lru import LRU as _LRU, LRUCell as _LRUCell
from linnet.units.lstm import LSTMState, LSTM as _LSTM, LSTMCell as _LSTMCell
from linnet.units.ltc import LTC as _LTC, LTCCell as _LTCCell
from linnet.units.mgu import MGU as _MGU, MGUCell as _MGUCell
from linnet.units.mingru import MinGRU as _MinGRU, MinGRUCell as _MinGRUCell
from linnet.units.minimalrnn import MinimalRNN as _MinimalRNN, MinimalRNNCell as _MinimalRNNCell
from linnet.units.minlstm import MinLSTM as _MinLSTM, MinLSTMCell as _MinLSTMCell
from linnet.units.nru import NRUState, NRU as _NRU, NRUCell as _NRUCell
from linnet.units.olrn import OLRN as _OLRN, OLRNCell as _OLRNCell
from linnet.units.qrnn import QRNNStateF, QRNNStateFO, QRNNStateIFO, QRNN as _QRNN, QRNNCell as _QRNNCell
from linnet.units.ran import RANState, RAN as _RAN, RANCell as _RANCell
from linnet.units.rglru import RGLRUState, RGLRU as _RGLRU, RGLRUCell as _RGLRUCell
from linnet.units.rnn import RNN as _RNN, RNNCell as _RNNCell
from linnet.units.scrn import SCRNState, SCRN as _SCRN, SCRNCell as _SCRNCell
from linnet.units.sgu import SGU as _SGU, SGUCell as _SGUCell
from linnet.units.slstm import SLSTMState, SLSTM as _SLSTM, SLSTMCell as _SLSTMCell
from linnet.units.sru import SRU as _SRU, SRUCell as _SRUCell
from linnet.units.statistical import StatisticalRU as _StatisticalRU, StatisticalRUCell as _StatisticalRUCell
from linnet.units.unicornn import UnICORNNState, UnICORNN as _UnICORNN, UnICORNNCell as _UnICORNNCell

__all__ = [
    "UNITS", "SRU", "SRUCell", "LRN", "LRNCell", "OLRN", "OLRNCell", "GLRN", "GLRNCell", "ELRN", "ELRNCell",
    "RAN", "RANCell", "NRU", "NRUCell", "SCRN", "SCRNCell", "ATR", "ATRCell", "QRNN", "QRNNCell", "JANET",
    "JANETCell", "LSTM", "LSTMCell", "GRU", "GRUCell", "RNN", "RNNCell", "StatisticalRU", "StatisticalRUCell",
    "EURNN", "EURNNCell", "GORU", "GORUCell", "MinGRU", "MinGRUCell", "MinLSTM", "MinLSTMCell", "RGLRU",
    "RGLRUCell", "SLSTM", "SLSTMCell", "HGRN", "HGRNCell", "LRU", "LRUCell", "LinOSS", "LinOSSCell", "IndRNN",
    "IndRNNCell", "UnICORNN", "UnICORNNCell", "CoRNN", "CoRNNCell", "LEM", "LEMCell", "FastRNN",
    "FastRNNCell", "FastGRNN", "FastGRNNCell", "CfC", "CfCCell", "LTC", "LTCCell", "LiGRU", "LiGRUCell",
    "MGU", "MGUCell", "MinimalRNN", "MinimalRNNCell", "SGU", "SGUCell",
]

_State = TypeVar("_State", default=Tensor)
_Given = TypeVar("_Given", default=Tensor)
_Returned = TypeVar("_Returned", default=tuple[Tensor, Tensor])
_ReturnedState = TypeVar("_ReturnedState", default=Tensor)

UNITS: dict[str, type[Recurrent]]

class _Stack(Recurrent, Generic[_State, _Given]):
    @overload
    def __call__(
        self, x: Tensor | None = None, state: _Given | None = None, *,
        lengths: Tensor | Sequence[int] | None = None, mask: Tensor | None = None,
        resets: Tensor | None = None, reset_state: _Given | None = None, timespans: Tensor | None = None,
        input: Tensor | None = None, hx: _Given | None = None,
    ) -> tuple[Tensor, _State]: ...
    @overload
    def __call__(
        self, x: PackedSequence | None = None, state: _Given | None = None, *,
        timespans: PackedSequence | None = None, input: PackedSequence | None = None,
        hx: _Given | None = None,
    ) -> tuple[PackedSequence, _State]: ...

class _Cell(Cell, Generic[_Returned, _Given]):
    def __call__(
        self, x: Tensor | None = None, state: _Given | None = None, *, timespans: Tensor | None = None,
        input: Tensor | None = None, hx: _Given | None = None,
    ) -> _Returned: ...

class SRUCell(_Cell[tuple[Tensor, Tensor], Tensor], _SRUCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, activation: Literal['tanh', 'identity'] = 'identity',
        recurrent_gates: bool = True, rescale: bool = True, highway: bool = True, highway_bias: float = 0.0,
        skip: Literal['auto', 'matrix'] = 'auto', rank: int = 0, cell_dropout: float = 0.0,
        cell_dropout_on: Literal['state', 'gate'] = 'state', full_bias: bool = False,
        skip_from: int | None = None, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class SRU(_Stack[_State, _State], _SRU):
    """The simple recurrent unit (Lei et al. 2018).

    One step of SRU: x_t [B, input_size], c [B, hidden_size] -> h_t [B, hidden_size], c.

    activation        g in (4): "identity" (the paper) or "tanh"
    recurrent_gates   False removes v_f c and v_r c (Table 5)
    rescale           False sets alpha = 1 (Table 5)
    highway           False removes the skip: h = r g(c) (Table 5)
    highway_bias      the start of b_r; the paper's language models take -3
    skip              "auto": x where the sizes agree, else a fourth matrix; "matrix": always a matrix
    rank              W = P Q through `rank` dimensions if x has more (Table 4: 512); 0: a full matrix
    cell_dropout      one mask over time; in a stack of several layers, in all but the last
    cell_dropout_on   "state": h = r (m g(c)) + (1 - r) x, at the time of the paper;
                      "gate": h = (m r) g(c) + (1 - m r) x, in the authors' code since March 2020
    full_bias         biases on all products, as in the SRU of the LRN authors
    skip_from         where in x the skip starts; set by the stack for bidirectional layers
    """
    @overload
    def __init__(
        self: SRU[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        activation: Literal['tanh', 'identity'] = 'identity', recurrent_gates: bool = True,
        rescale: bool = True, highway: bool = True, highway_bias: float = 0.0,
        skip: Literal['auto', 'matrix'] = 'auto', rank: int = 0, cell_dropout: float = 0.0,
        cell_dropout_on: Literal['state', 'gate'] = 'state', full_bias: bool = False,
        skip_from: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: SRU[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        activation: Literal['tanh', 'identity'] = 'identity', recurrent_gates: bool = True,
        rescale: bool = True, highway: bool = True, highway_bias: float = 0.0,
        skip: Literal['auto', 'matrix'] = 'auto', rank: int = 0, cell_dropout: float = 0.0,
        cell_dropout_on: Literal['state', 'gate'] = 'state', full_bias: bool = False,
        skip_from: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: SRU[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        activation: Literal['tanh', 'identity'] = 'identity', recurrent_gates: bool = True,
        rescale: bool = True, highway: bool = True, highway_bias: float = 0.0,
        skip: Literal['auto', 'matrix'] = 'auto', rank: int = 0, cell_dropout: float = 0.0,
        cell_dropout_on: Literal['state', 'gate'] = 'state', full_bias: bool = False,
        skip_from: int | None = None,
    ) -> None: ...

class LRNCell(_Cell[tuple[Tensor, Tensor], Tensor], _LRNCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, activation: Literal['tanh', 'identity'] = 'tanh',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class LRN(_Stack[_State, _State], _LRN):
    """The lightweight recurrent network (Zhang and Sennrich 2019).

    One step of LRN: x_t [B, input_size], h [B, hidden_size] -> h.

    activation   g in (4): "tanh" (the default, stable) or "identity"
    """
    @overload
    def __init__(
        self: LRN[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        activation: Literal['tanh', 'identity'] = 'tanh',
    ) -> None: ...
    @overload
    def __init__(
        self: LRN[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        activation: Literal['tanh', 'identity'] = 'tanh',
    ) -> None: ...
    @overload
    def __init__(
        self: LRN[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        activation: Literal['tanh', 'identity'] = 'tanh',
    ) -> None: ...

class OLRNCell(_Cell[tuple[Tensor, Tensor], Tensor], _OLRNCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, activation: Literal['tanh', 'identity'] = 'identity',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class OLRN(_Stack[_State, _State], _OLRN):
    """LRN with an output gate (Zhang and Sennrich 2019, section 6.3).

    One step of oLRN: x_t [B, input_size], h [B, hidden_size] -> h.

    activation   g around (11): "identity" (the paper) or "tanh"
    """
    @overload
    def __init__(
        self: OLRN[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        activation: Literal['tanh', 'identity'] = 'identity',
    ) -> None: ...
    @overload
    def __init__(
        self: OLRN[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        activation: Literal['tanh', 'identity'] = 'identity',
    ) -> None: ...
    @overload
    def __init__(
        self: OLRN[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        activation: Literal['tanh', 'identity'] = 'identity',
    ) -> None: ...

class GLRNCell(_Cell[tuple[Tensor, Tensor], Tensor], _GLRNCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, activation: Literal['tanh', 'identity'] = 'tanh',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class GLRN(_Stack[_State, _State], _GLRN):
    """LRN with one gate for both (Zhang and Sennrich 2019, section 6.7).

    One step of gLRN: x_t [B, input_size], h [B, hidden_size] -> h.
    """
    @overload
    def __init__(
        self: GLRN[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        activation: Literal['tanh', 'identity'] = 'tanh',
    ) -> None: ...
    @overload
    def __init__(
        self: GLRN[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        activation: Literal['tanh', 'identity'] = 'tanh',
    ) -> None: ...
    @overload
    def __init__(
        self: GLRN[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        activation: Literal['tanh', 'identity'] = 'tanh',
    ) -> None: ...

class ELRNCell(_Cell[tuple[Tensor, Tensor], Tensor], _ELRNCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, activation: Literal['tanh', 'identity'] = 'tanh',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class ELRN(_Stack[_State, _State], _ELRN):
    """LRN with a gate of the state alone (Zhang and Sennrich 2019, section 6.7).

    One step of eLRN: x_t [B, input_size], h [B, hidden_size] -> h.
    """
    @overload
    def __init__(
        self: ELRN[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        activation: Literal['tanh', 'identity'] = 'tanh',
    ) -> None: ...
    @overload
    def __init__(
        self: ELRN[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        activation: Literal['tanh', 'identity'] = 'tanh',
    ) -> None: ...
    @overload
    def __init__(
        self: ELRN[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        activation: Literal['tanh', 'identity'] = 'tanh',
    ) -> None: ...

class RANCell(_Cell[tuple[Tensor, RANState], Sequence[Tensor]], _RANCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, activation: Literal['tanh', 'identity'] | None = None,
        reduced: bool = False, proj_size: int = 0, heads: int = 1,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class RAN(_Stack[RANState, Sequence[Tensor]], _RAN):
    """The recurrent additive network (Lee et al. 2017).

    One step of RAN: x_t [B, input_size], (h, c) -> h [B, hidden_size], (h, c).

    activation   g: "tanh" (the paper's best) or "identity"
    reduced      the reduced form (2): no content layer and g the identity; input_size must equal hidden_size
    proj_size    project h to `proj_size` dimensions before it recurs (0: no projection)
    heads        cut h and each gate into this many heads: W_ih and W_fh are block-diagonal
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        activation: Literal['tanh', 'identity'] | None = None, reduced: bool = False, heads: int = 1,
    ) -> None: ...

class NRUCell(_Cell[tuple[Tensor, NRUState], Sequence[Tensor]], _NRUCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, memory_size: int = 64, num_heads: int = 4,
        directions: Literal['joint', 'per-head', 'full'] = 'joint',
        head_activation: Literal['identity', 'relu'] = 'identity',
        head_reduction: Literal['mean', 'sum'] = 'mean', heads_read_input: bool = False,
        layer_norm: bool = False, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class NRU(_Stack[NRUState, Sequence[Tensor]], _NRU):
    """The non-saturating recurrent unit (Chandar et al. 2019).

    One step of NRU: x_t [B, input_size], (h, m) -> h [B, hidden_size], (h, m).

    memory_size        the size of m
    num_heads          k, the number of write heads and of erase heads
    directions         how v is made: "joint", "per-head" or "full"
    head_activation    "identity" (linear heads) or "relu" (the paper's language model)
    head_reduction     over the heads: "mean" (the authors' code) or "sum" (the paper)
    heads_read_input   x_t as an input of the heads: False (the authors' code) or True (the paper)
    layer_norm         layer norm inside the ReLU of (9)
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        memory_size: int = 64, num_heads: int = 4, directions: Literal['joint', 'per-head', 'full'] = 'joint',
        head_activation: Literal['identity', 'relu'] = 'identity',
        head_reduction: Literal['mean', 'sum'] = 'mean', heads_read_input: bool = False,
        layer_norm: bool = False,
    ) -> None: ...

class SCRNCell(_Cell[tuple[Tensor, SCRNState], Sequence[Tensor]], _SCRNCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, context_size: int | None = None, alpha: float = 0.9,
        context_in_output: bool = True, hidden_reads: Literal['new', 'previous'] = 'new',
        init_scale: float = 0.3, heads: int = 1, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class SCRN(_Stack[SCRNState, Sequence[Tensor]], _SCRN):
    """The structurally constrained recurrent network (Mikolov et al. 2015, Kabdolov et al. 2018).

    One step of SCRN: x_t [B, input_size], (s, h) -> [s; h], (s, h).

    context_size        the size of s; by default a sixth of hidden_size, the ratio the paper found good
    alpha               how much of s is kept at each step (the paper: 0.9 stacked, 0.95 for one layer)
    context_in_output   False: the output is h alone; in a stack this is said of the last layer (Table 5)
    hidden_reads        the "new" s_t (the paper) or the "previous" s_{t-1} (the original Lua code)
    init_scale          all parameters start in U(-init_scale, init_scale)
    heads               cut h into this many heads: R is block-diagonal
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        context_size: int | None = None, alpha: float = 0.9, context_in_output: bool = True,
        hidden_reads: Literal['new', 'previous'] = 'new', init_scale: float = 0.3, heads: int = 1,
    ) -> None: ...

class ATRCell(_Cell[tuple[Tensor, Tensor], Tensor], _ATRCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, activation: Literal['tanh', 'identity'] = 'tanh',
        norm_on: Literal['input', 'all'] = 'input', heads: int = 1,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class ATR(_Stack[_State, _State], _ATR):
    """The twin-gated recurrent network (Zhang et al. 2018).

    One step of ATR: x_t [B, input_size], h [B, hidden_size] -> h.

    activation   g: "tanh" or "identity"
    norm_on      "input": `norm` is over the projected input; "all": over the product with h too (the LRN
                 authors)
    heads        cut h and q into this many heads: U is block-diagonal
    """
    @overload
    def __init__(
        self: ATR[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        activation: Literal['tanh', 'identity'] = 'tanh', norm_on: Literal['input', 'all'] = 'input',
        heads: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: ATR[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        activation: Literal['tanh', 'identity'] = 'tanh', norm_on: Literal['input', 'all'] = 'input',
        heads: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: ATR[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        activation: Literal['tanh', 'identity'] = 'tanh', norm_on: Literal['input', 'all'] = 'input',
        heads: int = 1,
    ) -> None: ...

class QRNNCell(_Cell[_Returned, Tensor | Sequence[Tensor]], _QRNNCell):
    @overload
    def __init__(
        self: QRNNCell[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, bias: bool = True,
        device: Device = None, dtype: torch.dtype | None = None, *, window: Literal[1] = 1,
        pooling: Literal['f', 'fo', 'ifo'] = 'fo', zoneout: float = 0.0, highway: bool = False,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...
    @overload
    def __init__(
        self: QRNNCell[tuple[Tensor, QRNNStateF]], input_size: int, hidden_size: int, bias: bool = True,
        device: Device = None, dtype: torch.dtype | None = None, *, window: Literal[2], pooling: Literal['f'],
        zoneout: float = 0.0, highway: bool = False, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...
    @overload
    def __init__(
        self: QRNNCell[tuple[Tensor, QRNNStateFO]], input_size: int, hidden_size: int, bias: bool = True,
        device: Device = None, dtype: torch.dtype | None = None, *, window: Literal[2],
        pooling: Literal['fo'] = 'fo', zoneout: float = 0.0, highway: bool = False,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...
    @overload
    def __init__(
        self: QRNNCell[tuple[Tensor, QRNNStateIFO]], input_size: int, hidden_size: int, bias: bool = True,
        device: Device = None, dtype: torch.dtype | None = None, *, window: Literal[2],
        pooling: Literal['ifo'], zoneout: float = 0.0, highway: bool = False,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...
    @overload
    def __init__(
        self: QRNNCell[tuple[Tensor, Tensor] | tuple[Tensor, QRNNStateF] | tuple[Tensor, QRNNStateFO] | tuple[Tensor, QRNNStateIFO]],
        input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, window: Literal[1, 2] = 1,
        pooling: Literal['f', 'fo', 'ifo'] = 'fo', zoneout: float = 0.0, highway: bool = False,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class QRNN(_Stack[_State, _State | Sequence[Tensor]], _QRNN):
    """The quasi-recurrent network (Bradbury et al. 2017).

    One step of QRNN: x_t [B, input_size], c [B, hidden_size] -> h [B, hidden_size], c.

    window    how many inputs a gate reads, 1 or 2 (then the state is a named tuple)
    pooling   "f", "fo" or "ifo"
    zoneout   the probability that a channel of c keeps its value for a step
    highway   h_t = o_t c_t + (1 - o_t) x_t, as the SRU paper compares with ("fo" or "ifo")
    """
    @overload
    def __init__(
        self: QRNN[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        window: Literal[1] = 1, pooling: Literal['f', 'fo', 'ifo'] = 'fo', highway: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: QRNN[QRNNStateF], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        window: Literal[2], pooling: Literal['f'], highway: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: QRNN[QRNNStateFO], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        window: Literal[2], pooling: Literal['fo'] = 'fo', highway: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: QRNN[QRNNStateIFO], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        window: Literal[2], pooling: Literal['ifo'], highway: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: QRNN[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        window: Literal[1] = 1, pooling: Literal['f', 'fo', 'ifo'] = 'fo', highway: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: QRNN[Tensor | QRNNStateF | QRNNStateFO | QRNNStateIFO | tuple[Tensor, Tensor]], input_size: int,
        hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        window: Literal[1, 2] = 1, pooling: Literal['f', 'fo', 'ifo'] = 'fo', highway: bool = False,
    ) -> None: ...

class JANETCell(_Cell[tuple[Tensor, Tensor], Tensor], _JANETCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, beta: float = 0.0, chrono: int | None = None,
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'orthogonal', heads: int = 1,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class JANET(_Stack[_State, _State], _JANET):
    """The forget-gate-only network (van der Westhuizen and Lasenby 2018).

    One step of JANET: x_t [B, input_size], h [B, hidden_size] -> h.

    beta     subtracted inside the gate that writes: 0 (the NRU authors) or 1 (JANET's own code)
    chrono   the longest dependency expected: b_f starts at log(1 ... chrono); needs bias=True
    init     "orthogonal" (the NRU authors), "uniform" (torch's) or "xavier"
    heads    cut h and each gate into this many heads: U_f and U_j are block-diagonal
    """
    @overload
    def __init__(
        self: JANET[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        beta: float = 0.0, chrono: int | None = None,
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'orthogonal', heads: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: JANET[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        beta: float = 0.0, chrono: int | None = None,
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'orthogonal', heads: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: JANET[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        beta: float = 0.0, chrono: int | None = None,
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'orthogonal', heads: int = 1,
    ) -> None: ...

class LSTMCell(_Cell[LSTMState, Sequence[Tensor]], _LSTMCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, peepholes: bool = False, output_gate: bool = True,
        content: Literal['recurrent', 'linear'] = 'recurrent',
        activation: Literal['tanh', 'identity'] = 'tanh', proj_size: int = 0, chrono: int | None = None,
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform',
        norm_on: Literal['input', 'all'] = 'input', heads: int = 1, second_bias: bool = True,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class LSTM(_Stack[LSTMState, Sequence[Tensor]], _LSTM):
    """The long short-term memory (Hochreiter and Schmidhuber 1997).

    One step of LSTM: x_t [B, input_size], (h, c) -> (h, c), as nn.LSTMCell.

    peepholes     gates read c, channel by channel
    output_gate   False: h = g(c)
    content       "recurrent" (tanh of x and h) or "linear" (W x alone)
    activation    g: "tanh" or "identity"
    proj_size     project h to `proj_size` dimensions before it recurs, as in nn.LSTM (0: no projection)
    chrono        the longest dependency expected: b_f = log(1 ... chrono), b_i = -b_f; needs bias=True
    init          "uniform" (torch's), "xavier" (the LRN authors) or "orthogonal" (the NRU authors, b_f = 1)
    norm_on       "input": `norm` is over the projected input of all gates together; "all": a norm for each
                  product, of x and of h, and for gates and content separately (the LRN authors)
    heads         cut h and each gate into this many heads: the matrices of h are block-diagonal
    second_bias   False: one bias a gate (the NRU authors, and the LRN authors' language model and tagger)
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        peepholes: bool = False, output_gate: bool = True,
        content: Literal['recurrent', 'linear'] = 'recurrent',
        activation: Literal['tanh', 'identity'] = 'tanh', chrono: int | None = None,
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform',
        norm_on: Literal['input', 'all'] = 'input', heads: int = 1, second_bias: bool = True,
    ) -> None: ...

class GRUCell(_Cell[_ReturnedState, Tensor | Sequence[Tensor]], _GRUCell):
    @overload
    def __init__(
        self: GRUCell[Tensor], input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, form: Literal['after', 'before'] = 'after',
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform',
        norm_on: Literal['input', 'all'] = 'input', heads: int = 1, second_bias: bool = True,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...
    @overload
    def __init__(
        self: GRUCell[tuple[Tensor, GRUState]], input_size: int, hidden_size: int, bias: bool = True,
        device: Device = None, dtype: torch.dtype | None = None, *, form: Literal['ran'],
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform',
        norm_on: Literal['input', 'all'] = 'input', heads: int = 1, second_bias: bool = True,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...
    @overload
    def __init__(
        self: GRUCell[Tensor | tuple[Tensor, GRUState]], input_size: int, hidden_size: int, bias: bool = True,
        device: Device = None, dtype: torch.dtype | None = None, *,
        form: Literal['after', 'before', 'ran'] = 'after',
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform',
        norm_on: Literal['input', 'all'] = 'input', heads: int = 1, second_bias: bool = True,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class GRU(_Stack[_State, _State | Sequence[Tensor]], _GRU):
    """The gated recurrent unit (Cho et al. 2014).

    One step of GRU: x_t [B, input_size], h [B, hidden_size] -> h, as nn.GRUCell.

    With form="ran" the state is (c, h), and a call returns c and the state.

    form      where the reset gate acts: "after" the product (torch's), "before" it (the papers'), or "ran"
    init      "uniform" (torch's), "xavier" (the LRN authors) or "orthogonal" (the NRU authors)
    norm_on   "input": `norm` is over the projected input of all gates together; "all": a norm for each
              product, of x and of h, and for gates and candidate separately (the LRN authors)
    heads     cut h and each gate into this many heads: the matrices of h are block-diagonal

    second_bias   False: one bias for r and z, and with form="after" two for n. Only form="after" has others
    """
    @overload
    def __init__(
        self: GRU[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        form: Literal['after', 'before'] = 'after',
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform',
        norm_on: Literal['input', 'all'] = 'input', heads: int = 1, second_bias: bool = True,
    ) -> None: ...
    @overload
    def __init__(
        self: GRU[GRUState], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        form: Literal['ran'], init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform',
        norm_on: Literal['input', 'all'] = 'input', heads: int = 1, second_bias: bool = True,
    ) -> None: ...
    @overload
    def __init__(
        self: GRU[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        form: Literal['after', 'before'] = 'after',
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform',
        norm_on: Literal['input', 'all'] = 'input', heads: int = 1, second_bias: bool = True,
    ) -> None: ...
    @overload
    def __init__(
        self: GRU[Tensor | GRUState | tuple[Tensor, Tensor]], input_size: int, hidden_size: int,
        num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, device: Device = None, dtype: torch.dtype | None = None, *,
        variational: bool = False, input_dropout: float = 0.0, state_dropout: float = 0.0,
        zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        form: Literal['after', 'before', 'ran'] = 'after',
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform',
        norm_on: Literal['input', 'all'] = 'input', heads: int = 1, second_bias: bool = True,
    ) -> None: ...

class RNNCell(_Cell[Tensor, Tensor], _RNNCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True,
        nonlinearity: Literal['tanh', 'relu', 'sigmoid'] = 'tanh', device: Device = None,
        dtype: torch.dtype | None = None, *, layer_norm: bool = False,
        init: Literal['uniform', 'xavier', 'orthogonal', 'identity'] = 'uniform', heads: int = 1,
        second_bias: bool = True, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class RNN(_Stack[_State, _State], _RNN):
    """The plain recurrent network (Elman 1990).

    One step of a plain RNN: x_t [B, input_size], h [B, hidden_size] -> h.

    nonlinearity   g: "tanh", "relu" or "sigmoid"
    layer_norm     layer norm inside g
    init           "uniform" (torch's), "xavier", "orthogonal" or "identity" (R = I, else as "orthogonal")
    heads          cut h into this many heads: R is block-diagonal
    second_bias    False: one bias (the NRU authors)
    """
    @overload
    def __init__(
        self: RNN[Tensor], input_size: int, hidden_size: int, num_layers: int = 1,
        nonlinearity: Literal['tanh', 'relu', 'sigmoid'] = 'tanh', bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        layer_norm: bool = False, init: Literal['uniform', 'xavier', 'orthogonal', 'identity'] = 'uniform',
        heads: int = 1, second_bias: bool = True,
    ) -> None: ...
    @overload
    def __init__(
        self: RNN[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        nonlinearity: Literal['tanh', 'relu', 'sigmoid'] = 'tanh', bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        layer_norm: bool = False, init: Literal['uniform', 'xavier', 'orthogonal', 'identity'] = 'uniform',
        heads: int = 1, second_bias: bool = True,
    ) -> None: ...
    @overload
    def __init__(
        self: RNN[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        nonlinearity: Literal['tanh', 'relu', 'sigmoid'] = 'tanh', bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        layer_norm: bool = False, init: Literal['uniform', 'xavier', 'orthogonal', 'identity'] = 'uniform',
        heads: int = 1, second_bias: bool = True,
    ) -> None: ...

class StatisticalRUCell(_Cell[tuple[Tensor, Tensor], Tensor], _StatisticalRUCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, statistics_size: int | None = None,
        summary_size: int | None = None, scales: Sequence[float] = (0.0, 0.5, 0.9, 0.99, 0.999),
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class StatisticalRU(_Stack[_State, _State], _StatisticalRU):
    """The statistical recurrent unit (Oliva et al. 2017).

    One step: x_t [B, input_size], mu [B, len(scales) * statistics_size] -> h [B, hidden_size], mu.

    statistics_size   the size of phi; by default hidden_size
    summary_size      the size of r; by default 0.3 hidden_size (both ratios are those of Oliva et al.)
    scales            how much of each average is kept at a step
    """
    @overload
    def __init__(
        self: StatisticalRU[Tensor], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        statistics_size: int | None = None, summary_size: int | None = None,
        scales: Sequence[float] = (0.0, 0.5, 0.9, 0.99, 0.999),
    ) -> None: ...
    @overload
    def __init__(
        self: StatisticalRU[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        statistics_size: int | None = None, summary_size: int | None = None,
        scales: Sequence[float] = (0.0, 0.5, 0.9, 0.99, 0.999),
    ) -> None: ...
    @overload
    def __init__(
        self: StatisticalRU[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int,
        num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, device: Device = None, dtype: torch.dtype | None = None, *,
        variational: bool = False, input_dropout: float = 0.0, state_dropout: float = 0.0,
        zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        statistics_size: int | None = None, summary_size: int | None = None,
        scales: Sequence[float] = (0.0, 0.5, 0.9, 0.99, 0.999),
    ) -> None: ...

class EURNNCell(_Cell[tuple[Tensor, Tensor], Tensor], _EURNNCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class EURNN(_Stack[_State, _State], _EURNN):
    """The efficient unitary network, real and in FFT style (Jing et al. 2017b).

    One step of EURNN: x_t [B, input_size], h [B, hidden_size] -> h. bias=False leaves b out of modReLU.
    """
    @overload
    def __init__(
        self: EURNN[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
    ) -> None: ...
    @overload
    def __init__(
        self: EURNN[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
    ) -> None: ...
    @overload
    def __init__(
        self: EURNN[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
    ) -> None: ...

class GORUCell(_Cell[tuple[Tensor, Tensor], Tensor], _GORUCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, heads: int = 1, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class GORU(_Stack[_State, _State], _GORU):
    """The gated orthogonal recurrent unit, in FFT style (Jing et al. 2017a).

    One step of GORU: x_t [B, input_size], h [B, hidden_size] -> h.

    heads   cut h and the gates into this many heads: W_r and W_g are block-diagonal
    """
    @overload
    def __init__(
        self: GORU[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        heads: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: GORU[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        heads: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: GORU[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        heads: int = 1,
    ) -> None: ...

class MinGRUCell(_Cell[tuple[Tensor, Tensor], Tensor], _MinGRUCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, activation: Literal['positive', 'identity'] = 'positive',
        highway: bool = False, learned_start: bool = False, skip_from: int | None = None,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class MinGRU(_Stack[_State, _State], _MinGRU):
    """The minimal gated recurrent unit (Feng et al. 2024).

    One step of MinGRU: x_t [B, input_size], h [B, hidden_size] -> h (with highway: y), h.

    activation      g: "positive" (appendix B) or "identity" (section 3)
    highway         y = p h + (1 - p) x with a third product p; needs input_size == hidden_size
    learned_start   sequences start from g(start_h), a parameter that starts in N(0, 1), instead of zeros
    skip_from       where in x the highway starts; set by the stack for bidirectional layers
    """
    @overload
    def __init__(
        self: MinGRU[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        activation: Literal['positive', 'identity'] = 'positive', highway: bool = False,
        learned_start: bool = False, skip_from: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: MinGRU[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        activation: Literal['positive', 'identity'] = 'positive', highway: bool = False,
        learned_start: bool = False, skip_from: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: MinGRU[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        activation: Literal['positive', 'identity'] = 'positive', highway: bool = False,
        learned_start: bool = False, skip_from: int | None = None,
    ) -> None: ...

class MinLSTMCell(_Cell[tuple[Tensor, Tensor], Tensor], _MinLSTMCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, activation: Literal['positive', 'identity'] = 'positive',
        normalised: bool = True, forget_bias: float = 0.0, learned_start: bool = False,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class MinLSTM(_Stack[_State, _State], _MinLSTM):
    """The minimal long short-term memory (Feng et al. 2024).

    One step of MinLSTM: x_t [B, input_size], h [B, hidden_size] -> h.

    activation      g: "positive" (appendix B) or "identity" (section 3)
    normalised      f and i are divided by f + i (the paper); False: they are not (the authors' code)
    forget_bias     added to the start of b_f (the authors' code: 3); needs bias=True
    learned_start   sequences start from g(start_h), a parameter that starts in N(0, 1), instead of zeros
    """
    @overload
    def __init__(
        self: MinLSTM[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        activation: Literal['positive', 'identity'] = 'positive', normalised: bool = True,
        forget_bias: float = 0.0, learned_start: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: MinLSTM[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        activation: Literal['positive', 'identity'] = 'positive', normalised: bool = True,
        forget_bias: float = 0.0, learned_start: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: MinLSTM[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        activation: Literal['positive', 'identity'] = 'positive', normalised: bool = True,
        forget_bias: float = 0.0, learned_start: bool = False,
    ) -> None: ...

class RGLRUCell(_Cell[tuple[Tensor, RGLRUState], Sequence[Tensor]], _RGLRUCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, heads: int = 1, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class RGLRU(_Stack[RGLRUState, Sequence[Tensor]], _RGLRU):
    """The real-gated linear recurrent unit (De et al. 2024).

    One step of RG-LRU: x_t [B, input_size], (h, started) -> h, (h, started).

    heads   cut x and each gate into this many heads: the matrices are block-diagonal
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        heads: int = 1,
    ) -> None: ...

class SLSTMCell(_Cell[tuple[Tensor, SLSTMState], Sequence[Tensor]], _SLSTMCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, heads: int = 1,
        forget_bias: Literal['powerlaw', 'small'] = 'powerlaw', depth: float = 0.0,
        recurrent_init: Literal['zeros', 'uniform'] = 'zeros', group_norm: bool = False,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class SLSTM(_Stack[SLSTMState, Sequence[Tensor]], _SLSTM):
    """The scalar LSTM of xLSTM (Beck et al. 2024).

    One step of sLSTM: x_t [B, input_size], (h, c, n, m) -> h, (h, c, n, m).

    heads            cut h and each gate into this many heads: R is block-diagonal
    forget_bias      how the forget gate starts, the channels j of each head from 0 to 1:
                     "powerlaw": 5 - 12 j^(0.3 + 1.3 depth), "small": 3 + 3 j
    depth            where the layer is, from 0 (the first) to 1 (the last); set by the stack
    recurrent_init   "zeros" or "uniform": R starts at 0 or in U(-1/sqrt(hidden_size), 1/sqrt(hidden_size))
    group_norm       normalise the output, each head for itself; the state h stays as it is
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        heads: int = 1, forget_bias: Literal['powerlaw', 'small'] = 'powerlaw', depth: float = 0.0,
        recurrent_init: Literal['zeros', 'uniform'] = 'zeros', group_norm: bool = False,
    ) -> None: ...

class HGRNCell(_Cell[_Returned, Tensor | Sequence[Tensor]], _HGRNCell):
    @overload
    def __init__(
        self: HGRNCell[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, bias: bool = True,
        device: Device = None, dtype: torch.dtype | None = None, *, complex: Literal[False] = False,
        model_size: int = 0, bounds: Literal['own', 'shared'] | None = 'own',
        output_norm: Literal['layer', 'rms'] | None = 'rms', norm_of: Literal['state', 'gated'] = 'state',
        output_gate: Literal['silu', 'sigmoid'] = 'silu', norm_eps: float | None = None, layer: int = 0,
        layers: int = 1, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...
    @overload
    def __init__(
        self: HGRNCell[tuple[Tensor, ComplexState]], input_size: int, hidden_size: int, bias: bool = True,
        device: Device = None, dtype: torch.dtype | None = None, *, complex: Literal[True],
        model_size: int = 0, bounds: Literal['own', 'shared'] | None = 'own',
        output_norm: Literal['layer', 'rms'] | None = 'rms', norm_of: Literal['state', 'gated'] = 'state',
        output_gate: Literal['silu', 'sigmoid'] = 'silu', norm_eps: float | None = None, layer: int = 0,
        layers: int = 1, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...
    @overload
    def __init__(
        self: HGRNCell[tuple[Tensor, Tensor] | tuple[Tensor, ComplexState]], input_size: int,
        hidden_size: int, bias: bool = True, device: Device = None, dtype: torch.dtype | None = None, *,
        complex: bool = False, model_size: int = 0, bounds: Literal['own', 'shared'] | None = 'own',
        output_norm: Literal['layer', 'rms'] | None = 'rms', norm_of: Literal['state', 'gated'] = 'state',
        output_gate: Literal['silu', 'sigmoid'] = 'silu', norm_eps: float | None = None, layer: int = 0,
        layers: int = 1, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class HGRN(_Stack[_State, _State | Sequence[Tensor]], _HGRN):
    """The hierarchically gated recurrent network (Qin et al. 2023).

    One step of HGRN: x_t [B, input_size], h [B, hidden_size] -> y_t [B, output_size], h.

    complex        h is complex: the state is (re, im)
    model_size     the size of y; by default hidden_size
    bounds         "own": each layer learns a Gamma; "shared": all learn one, as in the paper; None: lb = 0
    output_norm    "rms", "layer" or None
    norm_of        "state": norm(h) g; "gated": norm(h g), as in the paper
    output_gate    the activation of g: "silu" or "sigmoid"
    norm_eps       that of the norm; by default 1e-6 for "rms" and 1e-5 for "layer", as in the sources
    layer          the place of the cell in a stack, which sets it
    layers         how many layers the stack has, which sets it
    """
    @overload
    def __init__(
        self: HGRN[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        complex: Literal[False] = False, model_size: int = 0, bounds: Literal['own', 'shared'] | None = 'own',
        output_norm: Literal['layer', 'rms'] | None = 'rms', norm_of: Literal['state', 'gated'] = 'state',
        output_gate: Literal['silu', 'sigmoid'] = 'silu', norm_eps: float | None = None, layer: int = 0,
        layers: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: HGRN[ComplexState], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        complex: Literal[True], model_size: int = 0, bounds: Literal['own', 'shared'] | None = 'own',
        output_norm: Literal['layer', 'rms'] | None = 'rms', norm_of: Literal['state', 'gated'] = 'state',
        output_gate: Literal['silu', 'sigmoid'] = 'silu', norm_eps: float | None = None, layer: int = 0,
        layers: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: HGRN[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        complex: Literal[False] = False, model_size: int = 0, bounds: Literal['own', 'shared'] | None = 'own',
        output_norm: Literal['layer', 'rms'] | None = 'rms', norm_of: Literal['state', 'gated'] = 'state',
        output_gate: Literal['silu', 'sigmoid'] = 'silu', norm_eps: float | None = None, layer: int = 0,
        layers: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: HGRN[Tensor | ComplexState | tuple[Tensor, Tensor]], input_size: int, hidden_size: int,
        num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, device: Device = None, dtype: torch.dtype | None = None, *,
        variational: bool = False, input_dropout: float = 0.0, state_dropout: float = 0.0,
        zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        complex: bool = False, model_size: int = 0, bounds: Literal['own', 'shared'] | None = 'own',
        output_norm: Literal['layer', 'rms'] | None = 'rms', norm_of: Literal['state', 'gated'] = 'state',
        output_gate: Literal['silu', 'sigmoid'] = 'silu', norm_eps: float | None = None, layer: int = 0,
        layers: int = 1,
    ) -> None: ...

class LRUCell(_Cell[tuple[Tensor, ComplexState], Sequence[Tensor]], _LRUCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, model_size: int = 0, r_min: float = 0.0, r_max: float = 1.0,
        max_phase: float = 6.28, feedthrough: bool = True, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class LRU(_Stack[ComplexState, Sequence[Tensor]], _LRU):
    """The linear recurrent unit (Orvieto et al. 2023).

    One step of LRU: x_t [B, input_size], (re, im) [B, hidden_size] -> y_t [B, output_size], (re, im).

    model_size     the size of y; by default hidden_size
    r_min          the least absolute value of lambda at the start
    r_max          the greatest; at most 1
    max_phase      the largest phase at the start; 6.28 is the whole circle
    feedthrough    False: without D x
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        model_size: int = 0, r_min: float = 0.0, r_max: float = 1.0, max_phase: float = 6.28,
        feedthrough: bool = True,
    ) -> None: ...

class LinOSSCell(_Cell[tuple[Tensor, LinOSSState], Sequence[Tensor]], _LinOSSCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, model_size: int = 0,
        discretization: Literal['IM', 'IMEX'] = 'IM', feedthrough: bool = True,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class LinOSS(_Stack[LinOSSState, Sequence[Tensor]], _LinOSS):
    """Linear oscillators (Rusch and Rus 2025).

    One step of LinOSS: x_t [B, input_size], the state -> out_t [B, output_size], the state.

    hidden_size      the number of oscillators
    model_size       the size of the output; by default hidden_size
    discretization   "IM" or "IMEX"
    feedthrough      False: without D x
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        model_size: int = 0, discretization: Literal['IM', 'IMEX'] = 'IM', feedthrough: bool = True,
    ) -> None: ...

class IndRNNCell(_Cell[tuple[Tensor, Tensor], Tensor], _IndRNNCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, activation: Literal['relu', 'tanh'] = 'relu',
        steps: int | None = None, growth: float = 5.0, long_memory: bool = False,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class IndRNN(_Stack[_State, _State], _IndRNN):
    """The independently recurrent network (Li et al. 2018).

    One step of IndRNN: x_t [B, input_size], h [B, hidden_size] -> h.

    activation    g: "relu" (the paper) or "tanh"
    steps         T, the length of the sequences: u starts in U(0, M^(1/T)); None: in U(0, 1)
    growth        M, the factor by which a state may grow over `steps` steps; 5 in the authors' pixel MNIST
    long_memory   u starts in U(M^(-1/T), M^(1/T)); with `steps`, the stack sets it in its last layer
    """
    @overload
    def __init__(
        self: IndRNN[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        activation: Literal['relu', 'tanh'] = 'relu', steps: int | None = None, growth: float = 5.0,
        long_memory: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: IndRNN[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        activation: Literal['relu', 'tanh'] = 'relu', steps: int | None = None, growth: float = 5.0,
        long_memory: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: IndRNN[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        activation: Literal['relu', 'tanh'] = 'relu', steps: int | None = None, growth: float = 5.0,
        long_memory: bool = False,
    ) -> None: ...

class UnICORNNCell(_Cell[tuple[Tensor, UnICORNNState], Sequence[Tensor]], _UnICORNNCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, dt: float | Sequence[float] = 0.19, alpha: float = 30.65,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class UnICORNN(_Stack[UnICORNNState, Sequence[Tensor]], _UnICORNN):
    """The undamped independent controlled oscillatory network (Rusch and Mishra 2021b).

    One step of UnICORNN: x_t [B, input_size], (y, z) -> y, (y, z).

    dt      the longest time step; in a stack, a number for all layers or a sequence of one number per layer
            (the defaults of both are those of permuted sequential MNIST)
    alpha   the restoring force: without input an oscillator turns by about s sqrt(alpha + w) per step
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        dt: float | Sequence[float] = 0.19, alpha: float = 30.65,
    ) -> None: ...

class CoRNNCell(_Cell[tuple[Tensor, CoRNNState], Sequence[Tensor]], _CoRNNCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, dt: float = 0.042, gamma: float = 2.7, epsilon: float = 4.7,
        init: Literal['joint', 'separate'] = 'joint', norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class CoRNN(_Stack[CoRNNState, Sequence[Tensor]], _CoRNN):
    """The coupled oscillatory recurrent network (Rusch and Mishra 2021a).

    One step of coRNN: x_t [B, input_size], (y, z) -> y, (y, z).

    dt        the time step (the defaults of all three are those of sequential MNIST)
    gamma     the stiffness of the oscillators: their frequency without damping is sqrt(gamma)
    epsilon   the damping
    init      "joint": U(-1/sqrt(n), 1/sqrt(n)) with n the size of x, z and y together; "separate": the
              number of inputs of each matrix
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        dt: float = 0.042, gamma: float = 2.7, epsilon: float = 4.7,
        init: Literal['joint', 'separate'] = 'joint',
    ) -> None: ...

class LEMCell(_Cell[tuple[Tensor, LEMState], Sequence[Tensor]], _LEMCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, dt: float = 1.0, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class LEM(_Stack[LEMState, Sequence[Tensor]], _LEM):
    """The long expressive memory (Rusch et al. 2022).

    One step of LEM: x_t [B, input_size], (y, z) -> y, (y, z).

    dt   the longest time step of both states; the papers' tasks take 0.00017 to 1
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        dt: float = 1.0,
    ) -> None: ...

class FastRNNCell(_Cell[tuple[Tensor, Tensor], Tensor], _FastRNNCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *,
        update: Literal['tanh', 'sigmoid', 'relu', 'quantTanh', 'quantSigm', 'quantSigm4'] = 'tanh',
        rank: int = 0, recurrent_rank: int = 0, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class FastRNN(_Stack[_State, _State], _FastRNN):
    """The recurrent network with a weighted residual connection (Kusupati et al. 2018).

    One step of FastRNN: x_t [B, input_size], h [B, hidden_size] -> h.

    update           g: "tanh", "sigmoid", "relu", or piecewise linear: "quantTanh", "quantSigm", "quantSigm4"
    rank             W = W2 W1 through `rank` dimensions (0: a full matrix)
    recurrent_rank   U = U2 U1 through `recurrent_rank` dimensions (0: a full matrix)
    """
    @overload
    def __init__(
        self: FastRNN[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        update: Literal['tanh', 'sigmoid', 'relu', 'quantTanh', 'quantSigm', 'quantSigm4'] = 'tanh',
        rank: int = 0, recurrent_rank: int = 0,
    ) -> None: ...
    @overload
    def __init__(
        self: FastRNN[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        update: Literal['tanh', 'sigmoid', 'relu', 'quantTanh', 'quantSigm', 'quantSigm4'] = 'tanh',
        rank: int = 0, recurrent_rank: int = 0,
    ) -> None: ...
    @overload
    def __init__(
        self: FastRNN[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        update: Literal['tanh', 'sigmoid', 'relu', 'quantTanh', 'quantSigm', 'quantSigm4'] = 'tanh',
        rank: int = 0, recurrent_rank: int = 0,
    ) -> None: ...

class FastGRNNCell(_Cell[tuple[Tensor, Tensor], Tensor], _FastGRNNCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *,
        gate: Literal['tanh', 'sigmoid', 'relu', 'quantTanh', 'quantSigm', 'quantSigm4'] = 'sigmoid',
        update: Literal['tanh', 'sigmoid', 'relu', 'quantTanh', 'quantSigm', 'quantSigm4'] = 'tanh',
        rank: int = 0, recurrent_rank: int = 0, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class FastGRNN(_Stack[_State, _State], _FastGRNN):
    """The gated network with one matrix of x and one of h (Kusupati et al. 2018).

    One step of FastGRNN: x_t [B, input_size], h [B, hidden_size] -> h.

    gate             f: "sigmoid", or piecewise linear: "quantSigm", "quantSigm4"; or any that `update` takes
    update           g: "tanh", "sigmoid", "relu", or piecewise linear: "quantTanh", "quantSigm", "quantSigm4"
    rank             W = W2 W1 through `rank` dimensions (0: a full matrix)
    recurrent_rank   U = U2 U1 through `recurrent_rank` dimensions (0: a full matrix)
    """
    @overload
    def __init__(
        self: FastGRNN[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        gate: Literal['tanh', 'sigmoid', 'relu', 'quantTanh', 'quantSigm', 'quantSigm4'] = 'sigmoid',
        update: Literal['tanh', 'sigmoid', 'relu', 'quantTanh', 'quantSigm', 'quantSigm4'] = 'tanh',
        rank: int = 0, recurrent_rank: int = 0,
    ) -> None: ...
    @overload
    def __init__(
        self: FastGRNN[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        gate: Literal['tanh', 'sigmoid', 'relu', 'quantTanh', 'quantSigm', 'quantSigm4'] = 'sigmoid',
        update: Literal['tanh', 'sigmoid', 'relu', 'quantTanh', 'quantSigm', 'quantSigm4'] = 'tanh',
        rank: int = 0, recurrent_rank: int = 0,
    ) -> None: ...
    @overload
    def __init__(
        self: FastGRNN[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int,
        num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, device: Device = None, dtype: torch.dtype | None = None, *,
        variational: bool = False, input_dropout: float = 0.0, state_dropout: float = 0.0,
        zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        gate: Literal['tanh', 'sigmoid', 'relu', 'quantTanh', 'quantSigm', 'quantSigm4'] = 'sigmoid',
        update: Literal['tanh', 'sigmoid', 'relu', 'quantTanh', 'quantSigm', 'quantSigm4'] = 'tanh',
        rank: int = 0, recurrent_rank: int = 0,
    ) -> None: ...

class CfCCell(_Cell[_Returned, Tensor | Sequence[Tensor]], _CfCCell):
    @overload
    def __init__(
        self: CfCCell[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, bias: bool = True,
        device: Device = None, dtype: torch.dtype | None = None, *,
        mode: Literal['default', 'no_gate', 'pure'] = 'default', backbone_units: int = 128,
        backbone_layers: int = 1,
        activation: Literal['lecun_tanh', 'tanh', 'relu', 'silu', 'gelu'] = 'lecun_tanh',
        mixed_memory: Literal[False] = False, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...
    @overload
    def __init__(
        self: CfCCell[tuple[Tensor, CfCState]], input_size: int, hidden_size: int, bias: bool = True,
        device: Device = None, dtype: torch.dtype | None = None, *,
        mode: Literal['default', 'no_gate', 'pure'] = 'default', backbone_units: int = 128,
        backbone_layers: int = 1,
        activation: Literal['lecun_tanh', 'tanh', 'relu', 'silu', 'gelu'] = 'lecun_tanh',
        mixed_memory: Literal[True], norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...
    @overload
    def __init__(
        self: CfCCell[tuple[Tensor, Tensor] | tuple[Tensor, CfCState]], input_size: int, hidden_size: int,
        bias: bool = True, device: Device = None, dtype: torch.dtype | None = None, *,
        mode: Literal['default', 'no_gate', 'pure'] = 'default', backbone_units: int = 128,
        backbone_layers: int = 1,
        activation: Literal['lecun_tanh', 'tanh', 'relu', 'silu', 'gelu'] = 'lecun_tanh',
        mixed_memory: bool = False, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class CfC(_Stack[_State, _State | Sequence[Tensor]], _CfC):
    """The closed-form continuous-time unit (Hasani et al. 2022).

    One step of CfC: x_t [B, input_size], h [B, hidden_size], timespans [B] -> h.

    mode              "default", "no_gate" or "pure"
    backbone_units    the width of the backbone
    backbone_layers   how many layers it has; 0: v = [x, h]
    activation        of the backbone: "lecun_tanh", "tanh", "relu", "silu" or "gelu"
    mixed_memory      an LSTM step before; the state is then (h, c)
    """
    @overload
    def __init__(
        self: CfC[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        mode: Literal['default', 'no_gate', 'pure'] = 'default', backbone_units: int = 128,
        backbone_layers: int = 1,
        activation: Literal['lecun_tanh', 'tanh', 'relu', 'silu', 'gelu'] = 'lecun_tanh',
        mixed_memory: Literal[False] = False,
    ) -> None: ...
    @overload
    def __init__(
        self: CfC[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        mode: Literal['default', 'no_gate', 'pure'] = 'default', backbone_units: int = 128,
        backbone_layers: int = 1,
        activation: Literal['lecun_tanh', 'tanh', 'relu', 'silu', 'gelu'] = 'lecun_tanh',
        mixed_memory: Literal[False] = False,
    ) -> None: ...
    @overload
    def __init__(
        self: CfC[CfCState], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        mode: Literal['default', 'no_gate', 'pure'] = 'default', backbone_units: int = 128,
        backbone_layers: int = 1,
        activation: Literal['lecun_tanh', 'tanh', 'relu', 'silu', 'gelu'] = 'lecun_tanh',
        mixed_memory: Literal[True],
    ) -> None: ...
    @overload
    def __init__(
        self: CfC[Tensor | tuple[Tensor, Tensor] | CfCState], input_size: int, hidden_size: int,
        num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, device: Device = None, dtype: torch.dtype | None = None, *,
        variational: bool = False, input_dropout: float = 0.0, state_dropout: float = 0.0,
        zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        mode: Literal['default', 'no_gate', 'pure'] = 'default', backbone_units: int = 128,
        backbone_layers: int = 1,
        activation: Literal['lecun_tanh', 'tanh', 'relu', 'silu', 'gelu'] = 'lecun_tanh',
        mixed_memory: bool = False,
    ) -> None: ...

class LTCCell(_Cell[tuple[Tensor, Tensor], Tensor], _LTCCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, motors: int = 0, unfolds: int = 6, implicit: bool = False,
        wiring: tuple[Matrix, Matrix] | None = None, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class LTC(_Stack[_State, _State], _LTC):
    """The liquid time-constant unit (Hasani et al. 2021).

    One step of LTC: x_t [B, input_size], h [B, hidden_size], timespans [B] -> y_t [B, motors], h.

    motors        the first `motors` neurons are the output; by default all
    unfolds       the steps of the solver in each time step
    implicit      the softplus of w, sensory_w, cm and gleak is in their place, so that they may be negative
    wiring        two matrices of 0 and 1: the synapses from inputs, [input_size, hidden_size], and those
                  between neurons, [hidden_size, hidden_size], from row to column; None: all. Matrices that
                  have a -1, too, as ncps' adjacency matrices, are also the start of erev
    input_heads   by default each channel of x is scaled on its own; 2 or more: x' is a product with a
                  block-diagonal matrix of this many blocks
    """
    @overload
    def __init__(
        self: LTC[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        motors: int = 0, unfolds: int = 6, implicit: bool = False,
        wiring: tuple[Matrix, Matrix] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: LTC[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        motors: int = 0, unfolds: int = 6, implicit: bool = False,
        wiring: tuple[Matrix, Matrix] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: LTC[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        motors: int = 0, unfolds: int = 6, implicit: bool = False,
        wiring: tuple[Matrix, Matrix] | None = None,
    ) -> None: ...

class LiGRUCell(_Cell[tuple[Tensor, Tensor], Tensor], _LiGRUCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, normalization: Literal['batch', 'layer', 'rms'] | None = 'batch',
        frames: Literal['real', 'all'] = 'real', stable: bool = False,
        activation: Literal['relu', 'leaky_relu', 'tanh', 'sin'] = 'relu', cell_dropout: float = 0.0,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class LiGRU(_Stack[_State, _State], _LiGRU):
    """The light GRU (Ravanelli et al. 2018).

    One step of LiGRU: x_t [B, input_size], h [B, hidden_size] -> h.

    normalization   of W x: "batch", "layer", "rms" or None (with a bias instead)
    frames          which steps batch norm counts: "real", or "all" with padding as zeros
    stable          a layer norm of U h, without weights (SLi-GRU)
    activation      of a: "relu", "leaky_relu", "tanh" or "sin"
    cell_dropout    one mask over time on the activation of a
    """
    @overload
    def __init__(
        self: LiGRU[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        normalization: Literal['batch', 'layer', 'rms'] | None = 'batch',
        frames: Literal['real', 'all'] = 'real', stable: bool = False,
        activation: Literal['relu', 'leaky_relu', 'tanh', 'sin'] = 'relu', cell_dropout: float = 0.0,
    ) -> None: ...
    @overload
    def __init__(
        self: LiGRU[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        normalization: Literal['batch', 'layer', 'rms'] | None = 'batch',
        frames: Literal['real', 'all'] = 'real', stable: bool = False,
        activation: Literal['relu', 'leaky_relu', 'tanh', 'sin'] = 'relu', cell_dropout: float = 0.0,
    ) -> None: ...
    @overload
    def __init__(
        self: LiGRU[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        normalization: Literal['batch', 'layer', 'rms'] | None = 'batch',
        frames: Literal['real', 'all'] = 'real', stable: bool = False,
        activation: Literal['relu', 'leaky_relu', 'tanh', 'sin'] = 'relu', cell_dropout: float = 0.0,
    ) -> None: ...

class MGUCell(_Cell[tuple[Tensor, Tensor], Tensor], _MGUCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform',
        heads: int = 1, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class MGU(_Stack[_State, _State], _MGU):
    """The minimal gated unit (Zhou et al. 2016).

    One step of MGU: x_t [B, input_size], h [B, hidden_size] -> h.

    init    "uniform" (torch's), "xavier" or "orthogonal"
    heads   cut h and each gate into this many heads: U_f and U_c are block-diagonal
    """
    @overload
    def __init__(
        self: MGU[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform', heads: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: MGU[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform', heads: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: MGU[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform', heads: int = 1,
    ) -> None: ...

class MinimalRNNCell(_Cell[tuple[Tensor, Tensor], Tensor], _MinimalRNNCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform',
        heads: int = 1, norm: Literal['layer', 'rms'] | None = None,
        prenorm: Literal['layer', 'rms'] | None = None, input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class MinimalRNN(_Stack[_State, _State], _MinimalRNN):
    """The minimal recurrent network (Chen 2017).

    One step of MinimalRNN: x_t [B, input_size], h [B, hidden_size] -> h.

    init    "uniform" (torch's), "xavier" or "orthogonal"
    heads   cut h, z and u into this many heads: U_h and U_z are block-diagonal
    """
    @overload
    def __init__(
        self: MinimalRNN[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform', heads: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: MinimalRNN[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform', heads: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: MinimalRNN[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int,
        num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, device: Device = None, dtype: torch.dtype | None = None, *,
        variational: bool = False, input_dropout: float = 0.0, state_dropout: float = 0.0,
        zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform', heads: int = 1,
    ) -> None: ...

class SGUCell(_Cell[tuple[Tensor, Tensor], Tensor], _SGUCell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None,
        dtype: torch.dtype | None = None, *, deep: bool = False,
        init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform', heads: int = 1,
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, input_dropout: float = 0.0,
    ) -> None: ...

class SGU(_Stack[_State, _State], _SGU):
    """The simple gated unit (Gao and Glowacka 2016).

    One step of SGU: x_t [B, input_size], h [B, hidden_size] -> h.

    deep    True: DSGU, in which o has a matrix of its own
    init    "uniform" (torch's), "xavier" or "orthogonal"
    heads   cut h and each gate into this many heads: W_a, U_z and W_o are block-diagonal
    """
    @overload
    def __init__(
        self: SGU[Tensor], input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Device = None,
        dtype: torch.dtype | None = None, *, variational: bool = False, input_dropout: float = 0.0,
        state_dropout: float = 0.0, zoneout: float = 0.0, weight_drop: float = 0.0,
        weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[False] = False,
        deep: bool = False, init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform', heads: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: SGU[tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: Literal[True],
        deep: bool = False, init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform', heads: int = 1,
    ) -> None: ...
    @overload
    def __init__(
        self: SGU[Tensor | tuple[Tensor, Tensor]], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device = None, dtype: torch.dtype | None = None, *, variational: bool = False,
        input_dropout: float = 0.0, state_dropout: float = 0.0, zoneout: float = 0.0,
        weight_drop: float = 0.0, weight_drop_on: Literal['recurrent', 'all'] = 'recurrent',
        norm: Literal['layer', 'rms'] | None = None, prenorm: Literal['layer', 'rms'] | None = None,
        input_heads: int = 1, proj_size: int = 0, residual: bool = False, as_lstm: bool = False,
        deep: bool = False, init: Literal['uniform', 'xavier', 'orthogonal'] = 'uniform', heads: int = 1,
    ) -> None: ...
