"""The command line. ``hetsched --help`` lists the verbs; every verb loads only what it needs."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

INTERRUPTED = 130


def main() -> None:
    """Entry point: turn errors into one line and an exit code (2: bad input, 1: failed)."""
    try:
        code = _run()
    except KeyboardInterrupt:  # while the first modules were read, or while an error was shown
        code = INTERRUPTED
    sys.exit(code)


def _run() -> int:
    debug = "--debug" in sys.argv
    args = [a for a in sys.argv[1:] if a != "--debug"] or ["--help"]
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names that a terminal cannot show are still names
    from hetsched.errors import HetschedError

    try:
        from hetsched.cli import quick

        done = quick.answer(args)
        if done is not None:
            return done
        from hetsched.cli.commands import app

        code = app(args=args, prog_name="hetsched", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return 1
    except HetschedError as e:
        if debug:
            raise
        return _say(str(e), e.exit_code)
    except MemoryError:
        return _say("this machine does not have enough memory for that", 1)
    except Exception as e:
        if hasattr(e, "format_message"):  # the option parser's
            said = e.format_message().rstrip(".")
            return _say(f"{said}{' See' if said.endswith('?') else '; see'} '{_command(e)} --help'", 2)
        if debug:
            raise
        if isinstance(e, OSError) and e.strerror:
            _discard_output()
            return _say(f"{e.strerror}: {e.filename or 'standard output'}", 2 if e.filename else 1)
        return _say(f"internal error: {type(e).__name__}: {e} (run again with --debug for the traceback)", 1)
    return _say("interrupted", code) if code == INTERRUPTED else int(code or 0)


def _say(text: str, code: int) -> int:
    """One line on standard error, whatever is in the text; returns ``code``."""
    from hetsched.cli.lines import printable

    with suppress(OSError):
        print(f"hetsched: {printable(text)}", file=sys.stderr)
    return code


def _command(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return "hetsched" if context is None else str(context.command_path)


def _discard_output() -> None:
    """Nobody reads standard output any more: what is still buffered must not fail again while Python ends."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
