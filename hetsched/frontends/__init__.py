"""Reading model files into graphs. A format is recognised by content, never by the file's name."""

from hetsched.frontends.registry import GROUP, Frontend, format_of, load, phase_dims

__all__ = ["GROUP", "Frontend", "format_of", "load", "phase_dims"]
