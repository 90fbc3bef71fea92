"""Every unit as a stack with the signature of nn.LSTM, and the one list of them all."""

from __future__ import annotations

from linnet import units
from linnet.layers.recurrent import Recurrent


class SRU(Recurrent, cell=units.SRUCell):
    """The simple recurrent unit (Lei et al. 2018)."""


class LRN(Recurrent, cell=units.LRNCell):
    """The lightweight recurrent network (Zhang and Sennrich 2019)."""


class OLRN(Recurrent, cell=units.OLRNCell):
    """LRN with an output gate (Zhang and Sennrich 2019, section 6.3)."""


class GLRN(Recurrent, cell=units.GLRNCell):
    """LRN with one gate for both (Zhang and Sennrich 2019, section 6.7)."""


class ELRN(Recurrent, cell=units.ELRNCell):
    """LRN with a gate of the state alone (Zhang and Sennrich 2019, section 6.7)."""


class RAN(Recurrent, cell=units.RANCell):
    """The recurrent additive network (Lee et al. 2017)."""


class NRU(Recurrent, cell=units.NRUCell):
    """The non-saturating recurrent unit (Chandar et al. 2019)."""


class SCRN(Recurrent, cell=units.SCRNCell):
    """The structurally constrained recurrent network (Mikolov et al. 2015, Kabdolov et al. 2018)."""


class ATR(Recurrent, cell=units.ATRCell):
    """The twin-gated recurrent network (Zhang et al. 2018)."""


class QRNN(Recurrent, cell=units.QRNNCell):
    """The quasi-recurrent network (Bradbury et al. 2017)."""


class JANET(Recurrent, cell=units.JANETCell):
    """The forget-gate-only network (van der Westhuizen and Lasenby 2018)."""


class LSTM(Recurrent, cell=units.LSTMCell):
    """The long short-term memory (Hochreiter and Schmidhuber 1997)."""


class GRU(Recurrent, cell=units.GRUCell):
    """The gated recurrent unit (Cho et al. 2014)."""


class RNN(Recurrent, cell=units.RNNCell):
    """The plain recurrent network (Elman 1990)."""


class StatisticalRU(Recurrent, cell=units.StatisticalRUCell):
    """The statistical recurrent unit (Oliva et al. 2017)."""


class EURNN(Recurrent, cell=units.EURNNCell):
    """The efficient unitary network, real and in FFT style (Jing et al. 2017b)."""


class GORU(Recurrent, cell=units.GORUCell):
    """The gated orthogonal recurrent unit, in FFT style (Jing et al. 2017a)."""


# Tests, benchmarks, docs and the command line know the units from here and from nowhere else.
UNITS: dict[str, type[Recurrent]] = {
    unit.__name__.lower(): unit
    for unit in (
        SRU, LRN, OLRN, GLRN, ELRN, RAN, NRU, SCRN,
        ATR, QRNN, JANET, LSTM, GRU, RNN, StatisticalRU, EURNN, GORU,
    )
}  # fmt: skip
