"""Rewriting graphs: fusion of neighbouring operators, and its undoing. Each pass is a frozen dataclass called on a graph."""

from hetsched.passes.protocol import Pass, PassReport, check_order, run_passes
from hetsched.passes.standard import FUSING, SIMPLIFYING, STANDARD, standard
from hetsched.passes.target import for_soc
from hetsched.passes.undo import undo
from hetsched.passes.unfuse import unfuse

__all__ = [
    "FUSING",
    "SIMPLIFYING",
    "STANDARD",
    "Pass",
    "PassReport",
    "check_order",
    "for_soc",
    "run_passes",
    "standard",
    "undo",
    "unfuse",
]
