"""The house itself: lazy imports, a wheel that has everything, no clock or machine path in what is shipped."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAVY = ("numpy", "numba", "onnx", "ortools", "networkx", "pydantic", "simpy", "scipy", "plotly", "pandas", "rich")


def loaded_after(code: str) -> set[str]:
    """Heavy modules that a fresh interpreter has loaded after ``code``."""
    check = f"{code}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_import_loads_nothing_heavy() -> None:
    assert loaded_after("import hetsched") == set()


def test_no_package_compiles_kernels_on_import() -> None:
    packages = "hetsched_kernels, hetsched_cost_models, hetsched_simulations, hetsched.partition, hetsched.frontends"
    assert loaded_after(f"import {packages}").isdisjoint({"numba", "ortools", "onnx", "scipy"})


def test_passes_know_socs_by_their_types_only() -> None:
    assert loaded_after("import hetsched.passes") <= {"numpy"}


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; sys.argv = ['hetsched', '--help']\nfrom hetsched.cli import main\ntry: main()\nexcept SystemExit: pass"
    assert loaded_after(code) <= {"rich"}


def test_wheel_holds_four_packages_and_the_soc_files(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {n.split("/")[0] for n in names if ".dist-info" not in n}
    assert tops == {"hetsched", "hetsched_kernels", "hetsched_cost_models", "hetsched_simulations"}
    specs = {p.relative_to(ROOT / "soc_specs").as_posix() for p in (ROOT / "soc_specs").rglob("*.yaml")}
    assert specs and {f"hetsched/soc_specs/{s}" for s in specs} <= names
    studies = {p.relative_to(ROOT / "simulations/studies").as_posix() for p in (ROOT / "simulations/studies").rglob("*") if p.is_file()}
    assert studies and {f"hetsched/study_files/{s}" for s in studies} <= names
    shaders = {p.relative_to(ROOT).as_posix() for p in (ROOT / "hetsched").rglob("*.wgsl")}
    assert shaders and shaders <= names
    assert {f"hetsched_simulations/{name}" for name in ("cases.yaml", "phones.yaml")} <= names
    sources = [p for d in ("hetsched", "kernels", "cost_models", "simulations") for p in (ROOT / d).rglob("*.py")]
    shipped = {n for n in names if n.endswith(".py")}
    assert len(shipped) == len(sources)
    assert not [n for n in names if n.startswith(("tests", "docs"))]
