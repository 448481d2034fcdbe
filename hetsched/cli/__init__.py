"""The command line. ``hetsched --help`` lists the verbs; every verb loads only what it needs."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point: turn errors into one line and an exit code (2: bad input, 1: failed)."""
    from hetsched.cli.commands import app
    from hetsched.errors import HetschedError

    debug = "--debug" in sys.argv
    args = [a for a in sys.argv[1:] if a != "--debug"]
    try:
        app(args=args)
    except HetschedError as e:
        if debug:
            raise
        print(f"hetsched: {e}", file=sys.stderr)
        sys.exit(e.exit_code)
    except KeyboardInterrupt:
        print("hetsched: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
    except MemoryError:
        print("hetsched: this machine does not have enough memory for that", file=sys.stderr)
        sys.exit(1)
    except Exception as e:
        if debug:
            raise
        print(f"hetsched: internal error: {type(e).__name__}: {e} (run again with --debug for the traceback)", file=sys.stderr)
        sys.exit(1)
