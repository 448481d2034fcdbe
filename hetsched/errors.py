"""Every error that hetsched raises on purpose.

::

    HetschedError
    ├── InputError            the user's file, name or option is bad: exit code 2
    │   ├── ModelError        a model file (truncated, cyclic, missing dims, absurd shapes, unsafe paths)
    │   │   ├── UnsupportedModelError   a well-formed model that hetsched cannot handle; names the node
    │   │   └── ShapeError              an operator does not accept the shapes that it is given; names the node
    │   ├── SoCError          a SoC file or a SoC name
    │   ├── PlanError         a plan or deployment file, or a placement that breaks its rules
    │   │   └── DelegateError     a vendor runtime is absent, or an artefact of it is damaged or for another SoC
    │   ├── RangesError       a file of activation ranges, or one that belongs to another model
    │   ├── TraceError        a trace file
    │   └── OptionError       a command-line option or an API argument
    │       └── UnknownRuntimeError   a vendor runtime that the SoC does not have
    ├── InfeasibleError       no placement satisfies the constraints: exit code 1
    ├── ExecutionError        a run failed (a kernel, a delegate, a worker): exit code 1
    └── CheckError            a numerical check failed: exit code 1

Messages are one sentence: the offending name and value, where it is, and what to do about it.
"""

from __future__ import annotations

import re

#: Longer names and values lose their middle in a message, and so does a whole message.
MAX_QUOTED, MAX_MESSAGE = 160, 2000
_QUOTED = re.compile(rf"(?<!\w)(?:'[^']{{{MAX_QUOTED + 1},}}'|\"[^\"]{{{MAX_QUOTED + 1},}}\")(?!\w)")


def shortened(text: str, length: int) -> str:
    """``text`` without its middle where it is longer than ``length``.

    Examples:
        >>> shortened("a very long name", 9)
        'a ve…name'
    """
    return text if len(text) <= length else f"{text[: length // 2]}…{text[len(text) - (length - 1) // 2 :]}"


class HetschedError(Exception):
    r"""Base of every error raised on purpose; ``exit_code`` is what the command line returns.

    Names in a message come from files that nobody vouches for: line ends and other control characters are shown escaped, and what is
    quoted and longer than :data:`MAX_QUOTED` loses its middle, as does a whole message over :data:`MAX_MESSAGE`.

    Examples:
        >>> print(ModelError("the dim 'a\nb' is open"))
        the dim 'a\nb' is open
    """

    exit_code = 1
    #: Where a run failed: segments of the plan, and the name of the delegate. Empty where it is about something else.
    segments: tuple[int, ...] = ()
    delegate: str = ""

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > MAX_QUOTED:
            text = _QUOTED.sub(lambda match: shortened(match[0], MAX_QUOTED + 2), text)
            text = shortened(text, MAX_MESSAGE)
        return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def first_line(error: BaseException) -> str:
    r"""What a library's error says first, or its type where it says nothing.

    Examples:
        >>> first_line(RuntimeError("out of memory\nat 0x12")), first_line(KeyError())
        ('out of memory', 'KeyError')
    """
    return (str(error).splitlines() or [type(error).__name__])[0]


class InputError(HetschedError):
    """The user's input is bad."""

    exit_code = 2


class ModelError(InputError):
    """A model file cannot be read as a valid operator graph."""


class UnsupportedModelError(ModelError):
    """A valid model uses something hetsched does not handle; the message names the node."""


class ShapeError(ModelError):
    """An operator does not accept the shapes of its inputs, with the dims as they are bound; the message names the node."""


class SoCError(InputError):
    """A SoC file is malformed, or no SoC has the given name."""


class PlanError(InputError):
    """A plan file is malformed, or a plan breaks one of its own rules."""


class DelegateError(PlanError):
    """A vendor's runtime is not here, has no device for the plan, or a stored artefact of it is damaged or made for another SoC."""


class RangesError(InputError):
    """A file of activation ranges is malformed, or does not fit the model."""


class TraceError(InputError):
    """A trace file cannot be read."""


class OptionError(InputError):
    """An option or argument has a value that makes no sense."""


class UnknownRuntimeError(OptionError):
    """The SoC does not have the vendor runtime that is asked for; the message lists those that it has."""


class InfeasibleError(HetschedError):
    """No placement satisfies the constraints."""


class ExecutionError(HetschedError):
    """Running a plan failed."""


class CheckError(HetschedError):
    """A numerical comparison with the reference failed."""
