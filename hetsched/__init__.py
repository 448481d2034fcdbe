"""hetsched: where should each operator of a model run on a phone chip, how fast, how hot, and does it hold?

The Python API has the command line's verbs::

    import hetsched

    graph = hetsched.load("model.onnx", dims={"batch": 1})
    soc = hetsched.soc("snapdragon-8-gen-3")
    deployment = hetsched.plan(graph, soc)
    trace = hetsched.simulate(deployment, duration_s=600, ambient_c=35)
    result = hetsched.run(hetsched.plan(graph, "host"), check=True)
    hetsched.report([deployment, trace], "report.html")

Everything is imported on first use, so that ``import hetsched`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Planned", "accuracy", "assistant", "calibrate_ranges", "compare", "delta", "diff", "explain", "import_profile", "load", "plan",
    "report", "run", "simulate", "soc",
]  # fmt: skip

if TYPE_CHECKING:
    from hetsched.app import (
        Planned,
        accuracy,
        assistant,
        calibrate_ranges,
        compare,
        delta,
        diff,
        explain,
        import_profile,
        load,
        plan,
        report,
        run,
        simulate,
        soc,
    )


def __getattr__(name: str) -> Any:
    if name in __all__:
        from hetsched import app

        return getattr(app, name)
    raise AttributeError(f"module 'hetsched' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
