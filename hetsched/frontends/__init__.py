"""Reading model files into graphs. A format is recognised by content, never by the file's name."""

from hetsched.frontends.registry import GROUP, Frontend, load

__all__ = ["GROUP", "Frontend", "load"]
