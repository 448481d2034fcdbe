"""What failed in a run: errors that name the segment and the delegate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hetsched.errors import DelegateError, ExecutionError, HetschedError, first_line


class NotFiniteError(ExecutionError):
    """A segment in less than float32 wrote infinities or values that are no numbers, from finite inputs."""


def blamed(error: HetschedError, delegate: str, *segments: int) -> HetschedError:
    """The error, which says now what failed; what it says already stays."""
    error.delegate = error.delegate or delegate
    error.segments = error.segments or segments
    return error


def failure(error: Exception, delegate: str, segment: int) -> BaseException:
    """What a delegate raised for a segment, as an error of ours."""
    if isinstance(error, HetschedError):
        return blamed(error, delegate, segment)
    if isinstance(error, MemoryError):
        return error
    made = ExecutionError(f"the delegate {delegate!r} failed in segment {segment}: {type(error).__name__}: {first_line(error)}")
    made.__cause__ = error
    return blamed(made, delegate, segment)


@contextmanager
def compiling(delegate: str, segment: int) -> Iterator[None]:
    """Around the work of a delegate for a segment: what it raises names both.

    Raises:
        DelegateError: it raised something that is no error of ours.
    """
    try:
        yield
    except HetschedError as e:
        blamed(e, delegate, segment)
        raise
    except (ValueError, RuntimeError, OSError, LookupError, TypeError, AttributeError, ArithmeticError) as e:
        made = DelegateError(f"the delegate {delegate!r} cannot compile segment {segment}: {type(e).__name__}: {first_line(e)}")
        raise blamed(made, delegate, segment) from e
