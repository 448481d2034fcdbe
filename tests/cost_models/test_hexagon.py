"""The costs of a tiled accelerator by hand, and that more work is never cheaper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.soc_files import load_soc
from hetsched_cost_models import hexagon
from hetsched_cost_models.hexagon import Load, Unit
from hetsched_cost_models.parameters import family_of
from hetsched_cost_models.tiles import KINDS

UNIT = Unit(
    float_macs_s=1e12,
    int8_macs_s=4e12,
    int4_macs_s=4e12,
    float8_macs_s=2e12,
    vector_bytes_s=100e9,
    bandwidth_bytes_s=50e9,
    onchip_bytes=8e6,
)
FITTED = family_of(load_soc("snapdragon-8-gen-3").by_name["npu"]).tiled
ROUND = {
    **FITTED, "rate/f16": 1.0, "rate/w8a8": 0.5, "rate/w8a16": 0.25, "rate/matmul": 0.5, "vector": 2.0, "layout": 3.0, "prefetch": 0.5,
    "vector/conv": 0.5, "vector/gemm": 1.0, "vector/gemm_read": 0.25, "vector/function": 1.5, "vector/norm": 2.0, "norm/w8a8": 3.0,
}  # fmt: skip


def _load(kind: str, macs: float = 0.0, moved: float = 0.0, **other: float) -> Load:
    given = {"written": 0.0, "once": 0.0, "functions": 0.0, "weights": 0.0, "heads": 1.0, "tokens": 0.0, **other}
    return Load(np.array([KINDS.index(kind)]), np.array([macs]), np.array([moved]), **{k: np.array([v]) for k, v in given.items()})


def _parts(load: Load, precision: str = "f16", copies: float = 0.0, unit: Unit = UNIT, p: dict[str, float] = ROUND) -> list[float]:
    found = hexagon.parts_of(load, unit, np.array([hexagon.PRECISIONS.index(precision)]), np.array([copies]), p)
    return [float(v[0]) for v in (found.compute_s, found.spilled, found.waited, found.ahead)]


def test_a_convolution_pays_for_what_it_writes() -> None:
    load = _load("conv", macs=1e9, moved=9e6, written=4e6)
    assert _parts(load)[0] == pytest.approx(1e9 / 1e12 + 0.5 * 4e6 / 200e9)
    narrow = 0.5 * FITTED["conv/w8a8"] * 4e6 / 200e9
    assert _parts(load, "w8a8")[0] == pytest.approx(1e9 / (0.5 * 4e12) + narrow)
    assert _parts(load, "w8a16")[0] == pytest.approx(1e9 / (0.25 * 4e12) + 0.5 * 4e6 / 200e9)


def test_a_product_pays_for_what_it_writes_and_for_what_it_is_first_to_read() -> None:
    load = _load("gemm", macs=1e9, moved=9e6, written=4e6, once=2e6)
    assert _parts(load)[0] == pytest.approx(1e-3 + (4e6 + 0.25 * 2e6) / 200e9)
    assert _parts(load, copies=1.0)[0] == pytest.approx(1e-3 + 3 * (4e6 + 0.25 * 2e6) / 200e9), "the layout factor of ONNX Runtime"


def test_norms_are_dear_and_dearer_in_integers() -> None:
    load = _load("norm", moved=1e6)
    assert _parts(load)[0] == pytest.approx(2 * 1e6 / 200e9)
    assert _parts(load, "w8a8")[0] == pytest.approx(3 * _parts(load)[0])


def test_attention_scores_spill_only_when_one_head_does_not_fit() -> None:
    assert _parts(_load("softmax", moved=32e6, heads=12.0))[1] < 0.02 * 32e6
    assert _parts(_load("softmax", moved=32e6))[1] > 0.99 * 32e6


def test_weights_beyond_half_of_the_memory_are_waited_for() -> None:
    for weights, share in ((4e6, 0.5), (0.4e6, 0.01 / 1.01), (40e6, 100 / 101)):
        _, _, waited, ahead = _parts(_load("conv", weights=weights))
        assert waited == pytest.approx(share * weights)
        assert waited + ahead == pytest.approx(weights)


def test_views_move_no_weights_and_are_not_dispatched() -> None:
    load = _load("view", moved=64e6, weights=1e6)
    assert _parts(load)[1:] == [0.0, 0.0, 0.0]
    assert hexagon.dispatch(load.kind, load.tokens, FITTED).tolist() == [0.0]


def test_dispatch_by_kind_and_layout() -> None:
    kinds = np.array([KINDS.index(k) for k in ("conv", "gemm", "norm")])
    found = hexagon.dispatch(kinds, np.array([0.0, 1.0, 1.0]), {"op_s": 1.0, "gemm_s": 10.0, "token_s": 100.0})
    assert found.tolist() == [1.0, 111.0, 101.0]


@given(
    st.sampled_from([k for k in KINDS if k != "view"]), st.sampled_from(hexagon.PRECISIONS), st.floats(0, 1e10), st.floats(1, 1e8),
    st.floats(0, 1e8), st.sampled_from(["macs", "moved", "written", "once", "functions", "weights"]), st.floats(1, 10),
)  # fmt: skip
def test_more_is_never_cheaper(kind: str, precision: str, macs: float, moved: float, weights: float, field: str, factor: float) -> None:
    small = _load(kind, macs, moved, written=moved / 2, once=moved / 3, weights=weights, functions=moved / 2)
    large = replace(small, **{field: getattr(small, field) * factor})
    for a, b in zip(_parts(small, precision, p=FITTED), _parts(large, precision, p=FITTED), strict=True):
        if field != "weights":
            assert b >= a * (1 - 1e-12)
    assert sum(_parts(large, precision, p=FITTED)[2:]) >= sum(_parts(small, precision, p=FITTED)[2:]) * (1 - 1e-12)


@pytest.mark.parametrize("field", ["float_macs_s", "vector_bytes_s"])
def test_a_faster_unit_is_never_slower(field: str) -> None:
    faster = replace(UNIT, **{field: 2 * getattr(UNIT, field)})
    for kind in KINDS:
        load = _load(kind, 1e9, 1e6, written=5e5, once=5e5)
        assert _parts(load, unit=faster)[0] <= _parts(load)[0]


def test_floats_without_a_float_unit() -> None:
    assert hexagon.unit({"i8": 8e12}, 1.0, 2.0, 3.0) == Unit(1e12, 4e12, 4e12, 1e12, 1.0, 2.0, 3.0)
    assert hexagon.unit({"f16": 4e12, "i8": 8e12}, 1.0, 2.0, 3.0).float_macs_s == 2e12
