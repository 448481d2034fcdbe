"""Rewriting graphs: fusion of neighbouring operators, and its undoing. Each pass is a frozen dataclass called on a graph."""

from hetsched.passes.standard import STANDARD, Pass, standard
from hetsched.passes.unfuse import unfuse

__all__ = ["STANDARD", "Pass", "standard", "unfuse"]
