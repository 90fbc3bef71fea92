"""One file per unit: its paper, its equations, its cell and the stack of such cells.

The lines below are the one list of units, in the order in which they are shown. From it come `linnet.UNITS`,
the names in `linnet`, the choices of `--unit`, and the units of the tests and the documentation.
"""

# ruff: noqa: I001, in the order of papers

from linnet.units.sru import SRU as SRU, SRUCell as SRUCell
from linnet.units.lrn import LRN as LRN, LRNCell as LRNCell
from linnet.units.olrn import OLRN as OLRN, OLRNCell as OLRNCell
from linnet.units.glrn import GLRN as GLRN, GLRNCell as GLRNCell
from linnet.units.elrn import ELRN as ELRN, ELRNCell as ELRNCell
from linnet.units.ran import RAN as RAN, RANCell as RANCell
from linnet.units.nru import NRU as NRU, NRUCell as NRUCell
from linnet.units.scrn import SCRN as SCRN, SCRNCell as SCRNCell
from linnet.units.atr import ATR as ATR, ATRCell as ATRCell
from linnet.units.qrnn import QRNN as QRNN, QRNNCell as QRNNCell
from linnet.units.janet import JANET as JANET, JANETCell as JANETCell
from linnet.units.lstm import LSTM as LSTM, LSTMCell as LSTMCell
from linnet.units.gru import GRU as GRU, GRUCell as GRUCell
from linnet.units.rnn import RNN as RNN, RNNCell as RNNCell
from linnet.units.statistical import StatisticalRU as StatisticalRU, StatisticalRUCell as StatisticalRUCell
from linnet.units.eurnn import EURNN as EURNN, EURNNCell as EURNNCell
from linnet.units.goru import GORU as GORU, GORUCell as GORUCell
from linnet.units.mingru import MinGRU as MinGRU, MinGRUCell as MinGRUCell
from linnet.units.minlstm import MinLSTM as MinLSTM, MinLSTMCell as MinLSTMCell
from linnet.units.rglru import RGLRU as RGLRU, RGLRUCell as RGLRUCell
from linnet.units.slstm import SLSTM as SLSTM, SLSTMCell as SLSTMCell
from linnet.units.hgrn import HGRN as HGRN, HGRNCell as HGRNCell
from linnet.units.lru import LRU as LRU, LRUCell as LRUCell
from linnet.units.linoss import LinOSS as LinOSS, LinOSSCell as LinOSSCell
from linnet.units.indrnn import IndRNN as IndRNN, IndRNNCell as IndRNNCell
from linnet.units.unicornn import UnICORNN as UnICORNN, UnICORNNCell as UnICORNNCell
from linnet.units.cornn import CoRNN as CoRNN, CoRNNCell as CoRNNCell
from linnet.units.lem import LEM as LEM, LEMCell as LEMCell
from linnet.units.fastrnn import FastRNN as FastRNN, FastRNNCell as FastRNNCell
from linnet.units.fastgrnn import FastGRNN as FastGRNN, FastGRNNCell as FastGRNNCell
from linnet.units.cfc import CfC as CfC, CfCCell as CfCCell
from linnet.units.ltc import LTC as LTC, LTCCell as LTCCell
from linnet.units.ligru import LiGRU as LiGRU, LiGRUCell as LiGRUCell
from linnet.units.mgu import MGU as MGU, MGUCell as MGUCell
from linnet.units.minimalrnn import MinimalRNN as MinimalRNN, MinimalRNNCell as MinimalRNNCell
from linnet.units.sgu import SGU as SGU, SGUCell as SGUCell

from linnet.recurrent.recurrent import Recurrent as _Recurrent

# Every stack of the list, by the name that the command line and files of settings use.
UNITS: dict[str, type[_Recurrent]] = {
    name.lower(): value
    for name, value in list(globals().items())
    if isinstance(value, type) and issubclass(value, _Recurrent) and value is not _Recurrent
}

# Type checkers cannot compute a list. They find none that they can read, and so take all public names of
# this file, which are the same.
globals()["__all__"] = [
    "UNITS",
    *(each.__name__ for unit in UNITS.values() for each in (unit, unit.cell_class)),
]
