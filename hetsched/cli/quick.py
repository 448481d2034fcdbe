"""``hetsched run PLAN`` from a stored executable: the option parser alone would take longer to load than the plan takes to run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_NUMBERS = {"--repeat": "repeat", "--seed": "seed", "--level": "level"}
_PATHS = {"--input": "inputs", "-o": "output", "--output": "output"}


def answer(args: Sequence[str]) -> int | None:
    """Do what ``args`` ask for, if that is to run a plan file that is stored; returns the exit code.

    Returns:
        None if it is anything else, or asked in a way that only the parser can read: it is then up to the parser.

    Raises:
        HetschedError: as the verb *run*.
    """
    asked = _read(args)
    if asked is None:
        return None
    target, numbers, paths, as_json = asked
    from hetsched.app.running import run_stored
    from hetsched.files import check_destination

    if "output" in paths:
        check_destination(paths["output"], (target, paths.get("inputs")))
    ran = run_stored(target, paths.get("inputs"), numbers.get("repeat", 5), numbers.get("seed", 0), numbers.get("level", 0))
    if ran is None:
        return None
    from hetsched.cli import show

    if "output" in paths:
        from hetsched.cli.running import write_outputs

        write_outputs(ran, paths["output"])
    if as_json:
        show.json(ran.summary() | {"trace_path": None})
    else:
        show.ran(ran, None)
    return 0


def _read(args: Sequence[str]) -> tuple[Path, dict[str, int], dict[str, Path], bool] | None:
    """The plan file, options with a number, options with a path, and whether JSON is wanted; None if there is anything else."""
    if len(args) < 2 or args[0] != "run" or args[1].startswith("-"):
        return None
    numbers: dict[str, int] = {}
    paths: dict[str, Path] = {}
    rest = list(args[2:])
    as_json = rest.count("--json") == 1
    if as_json:
        rest.remove("--json")
    for option, value in zip(rest[::2], rest[1::2] + [""] * (len(rest) % 2), strict=True):
        if option in _NUMBERS and _NUMBERS[option] not in numbers and value.isascii() and value.isdigit():
            numbers[_NUMBERS[option]] = int(value)
        elif option in _PATHS and _PATHS[option] not in paths and value and not value.startswith("-"):
            paths[_PATHS[option]] = Path(value)
        else:
            return None
    return Path(args[1]), numbers, paths, as_json
