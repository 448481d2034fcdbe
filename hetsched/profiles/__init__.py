"""Profiles taken elsewhere: ONNX Runtime, TFLite, QNN, AI Hub, a plain table or a trace -> measured times of operators.

:func:`read` finds the format from the content; :mod:`hetsched.profiles.matching` finds the operators of a graph in it.
"""

from __future__ import annotations

from hetsched.profiles.reading import read
from hetsched.profiles.timings import Profile, Timing

__all__ = ["Profile", "Timing", "read"]
