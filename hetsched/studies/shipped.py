"""The studies that ship with hetsched, by name."""

from __future__ import annotations

from pathlib import Path

from hetsched.errors import OptionError


def study_directory(package: Path | None = None) -> Path:
    """The folder of study files: package data where present, else the checkout's ``simulations/studies``.

    Args:
        package: the folder of the ``hetsched`` package (default: this one's).

    Raises:
        OptionError: neither exists (a broken installation).
    """
    package = package or Path(__file__).parent.parent
    for folder in (package / "study_files", package.parent / "simulations" / "studies"):
        if folder.is_dir():
            return folder
    raise OptionError(f"no study files beside {package}: reinstall hetsched, or give the path of a study file")


def shipped() -> dict[str, Path]:
    """Name -> file, sorted by name."""
    return {p.stem: p for p in sorted(study_directory().glob("*.yaml"), key=lambda p: p.stem)}


def study_path(name: str) -> Path:
    """A study file by its path, or one that ships by its name.

    Raises:
        OptionError: there is neither.
    """
    if "/" in name or "\\" in name or name.endswith((".yaml", ".yml")):
        return Path(name)
    known = shipped()
    if name not in known:
        raise OptionError(f"no study is called {name!r}: use one of {', '.join(known)}, or the path of a study file")
    return known[name]
