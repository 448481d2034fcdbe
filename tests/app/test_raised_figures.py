"""What-if hardware of a kind: better hardware never slows a plan, and what should change one does."""

from __future__ import annotations

from pathlib import Path

import pytest

import hetsched

BETTER = {
    "npu.int8_tops": "300", "npu.fp16_tops": "300", "npu.int4_tops": "600", "npu.fp8_tops": "600", "npu.sparsity": "2",
    "npu.vector_gbps": "900", "npu.bandwidth_gbps": "500", "memory.bandwidth_gbps": "500", "npu.onchip_mb": "64", "npu.clock_ghz": "4",
    "npu.launch_us": "1", "npu.op_overhead_us": "0", "cpu-npu.sync_us": "1", "gpu.fp16_tflops": "50", "cpu.fp32_tflops": "9",
    "memory.system_cache_mb": "256", "memory.system_cache_gbps": "400", "memory.pim_gbps": "800",
}  # fmt: skip
SOCS = ("snapdragon-8-gen-3", "dimensity-9300", "apple-a17-pro")


def latency(model: Path, soc: str, precision: str, solver: str, field: str | None = None) -> float:
    made = hetsched.plan(
        model, soc, dims={"width": 96}, precision=precision, solver=solver, simulated=False, public_anchors=False,
        overrides={field: BETTER[field]} if field else None,
    )  # fmt: skip
    return made.plan.prediction.latency_s


@pytest.mark.parametrize("precision", ["float", "w8a8"])
@pytest.mark.parametrize("soc", SOCS)
def test_better_hardware_never_slows_a_plan(two_branch_heavy: Path, soc: str, precision: str) -> None:
    before = latency(two_branch_heavy, soc, precision, "single:npu")
    after = {f: latency(two_branch_heavy, soc, precision, "single:npu", f) for f in BETTER}
    assert {f: s for f, s in after.items() if s > before * (1 + 1e-9)} == {}
    rate = "npu.int8_tops" if precision == "w8a8" else "npu.fp16_tops"
    for field in (rate, "npu.sparsity", "npu.clock_ghz", "npu.launch_us", "memory.bandwidth_gbps"):
        assert after[field] < before, field


def test_power_says_that_voltages_are_estimates_wherever_it_is_shown(two_branch: Path, tmp_path: Path) -> None:
    said = "no Snapdragon voltage is published"
    planned = hetsched.plan(two_branch, "snapdragon-8-gen-3", dims={"width": 16})
    assert said in planned.summary()["power_basis"] and any(said in n for n in planned.plan.notes)
    assert said in hetsched.simulate(planned).summary()["power_basis"]
    assert said in hetsched.explain(planned, planned.plan.placements[0].op).power_basis
    assert said in hetsched.report(planned, tmp_path / "r.html").read_text("utf-8")
