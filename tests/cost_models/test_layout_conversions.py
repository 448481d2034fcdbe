"""A conversion of layout is charged per tensor and consuming domain, also where the elements are stored alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hetsched.graph import Graph
from hetsched.socs import SoC
from hetsched_cost_models import build_table


def table_of(graph_of: Callable[..., Graph], soc: SoC, shape: tuple[int, ...], layout: str) -> tuple[float, float]:
    """Seconds to convert a tensor of ``shape`` from the GPU (f16, NHWC) to the NPU (f16, in ``layout``), and from GPU to GPU."""
    spec = soc.model_dump()
    for p in spec["processors"]:
        p["layout"] = {"gpu": "nhwc", "npu": layout}.get(p["name"], "native")
    graph = graph_of([("Relu", ["x"], ["h"]), ("Relu", ["h"], ["y"])], {"x": shape, "h": shape, "y": shape})
    table = build_table(graph, SoC.model_validate(spec), precision="float")
    domain = {table.queues[d.queue].kind: i for i, d in enumerate(table.domains)}
    h = table.tensor_names.index("h")
    return float(table.conversion_s[h, domain["gpu"], domain["npu"]]), float(table.conversion_s[h, domain["gpu"], domain["gpu"]])


@pytest.mark.parametrize(
    ("shape", "layout", "charged"), [((1, 8, 16, 16), "native", True), ((1, 8, 16, 16), "nhwc", False), ((8, 256), "native", False)]
)
def test_layout(graph_of: Callable[..., Graph], soc: SoC, shape: tuple[int, ...], layout: str, charged: bool) -> None:
    across, within = table_of(graph_of, soc, shape, layout)
    assert (across > 0) == charged and within == 0
    if charged:  # read and written once, 2 bytes an element, at the slower of the vector rate and the bandwidth
        assert across == pytest.approx(2 * 2 * 2048 / min(100e9, 10e9))
