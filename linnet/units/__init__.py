"""One file per unit: its equations, its parameters, how they start, and the options of its paper."""

from linnet.units.atr import ATRCell
from linnet.units.cell import Cell
from linnet.units.elrn import ELRNCell
from linnet.units.eurnn import EURNNCell
from linnet.units.glrn import GLRNCell
from linnet.units.goru import GORUCell
from linnet.units.gru import GRUCell
from linnet.units.janet import JANETCell
from linnet.units.lrn import LRNCell
from linnet.units.lstm import LSTMCell
from linnet.units.nru import NRUCell
from linnet.units.olrn import OLRNCell
from linnet.units.projection import Projection
from linnet.units.qrnn import QRNNCell
from linnet.units.ran import RANCell
from linnet.units.rnn import RNNCell
from linnet.units.scrn import SCRNCell
from linnet.units.sru import SRUCell
from linnet.units.statistical import StatisticalRUCell

__all__ = [
    "ATRCell",
    "Cell",
    "ELRNCell",
    "EURNNCell",
    "GLRNCell",
    "GORUCell",
    "GRUCell",
    "JANETCell",
    "LRNCell",
    "LSTMCell",
    "NRUCell",
    "OLRNCell",
    "Projection",
    "QRNNCell",
    "RANCell",
    "RNNCell",
    "SCRNCell",
    "SRUCell",
    "StatisticalRUCell",
]
