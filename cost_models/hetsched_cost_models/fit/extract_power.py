"""Makes the data of the power fit: ``python -m hetsched_cost_models.fit.extract_power [MEASUREMENTS]``.

The median over a chip's runs of the power that one busy core adds; clusters whose meter shows next to nothing are left out.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from hetsched_cost_models.fit.power import POINTS_FILE

MEASUREMENTS = Path("../shared/measurements")
#: Process of each chip in nm, as its maker says (from memory).
_NM = {
    5: "gs101 gs201 sm8350", 4: "zuma zumapro", 7: "mt6853t sm7250ab sm8150 sm8150ac sm8250 sm8250ac",
    8: "sm7125 sm7150 sm7150ab sm7150ac sm7225", 10: "exynos9611 msm8998 sdm670 sdm710 sdm712 sdm845", 11: "sm6115 sm6125 sm6150 sm6150ac",
    12: "mt6768 sdm439", 14: "exynos7880 exynos7904 msm8953 msm8996 sdm630 sdm632 sdm636 sdm660", 28: "msm8917 msm8940", 32: "exynos5250",
}  # fmt: skip
#: Chips whose cores share a cluster and an L3 cache (DynamIQ: Cortex-A55 and later), as Arm says of these cores (from memory).
_DYNAMIQ = (
    "gs101 gs201 zuma zumapro sm8350 sm8250 sm8250ac sm8150 sm8150ac sm7250ab sm7225 sm7150 sm7150ab sm7150ac sm7125 sm6150 sm6150ac "
    "sdm845 sdm670 sdm710 sdm712 mt6853t mt6768"
)
_LEAST_MW = 1.0


def main(arguments: Sequence[str]) -> int:
    """Write the file."""
    process = {chip: nm for nm, names in _NM.items() for chip in names.split()}
    shared = frozenset(_DYNAMIQ.split())
    folder = Path(arguments[0]) if arguments else MEASUREMENTS
    runs: dict[tuple[str, str, int], list[tuple[float, float]]] = defaultdict(list)
    with (folder / "dvfs_cpu.csv").open(encoding="utf-8", newline="") as f:
        for r in csv.DictReader(f):
            if float(r["power_mw"] or 0) > _LEAST_MW:
                runs[r["soc_code"], r["cpu"], int(r["freq_khz"])].append((float(r["power_mw"]), float(r["coremark_per_s"])))
    work: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (chip, cpu, khz), found in runs.items():
        work[chip, cpu].append(statistics.median(w for _, w in found) / khz * 1e3)
    lines = [
        "# kdrag0n/freqbench@9eb16adc, medians over the runs of a chip; nm and dynamiq from memory",
        "chip,cpu,ghz,coremark_per_mhz,nm,dynamiq,milliwatts",
    ]
    for (chip, cpu, khz), found in sorted(runs.items()):
        each, power = statistics.median(work[chip, cpu]), statistics.median(p for p, _ in found)
        lines.append(f"{chip},{cpu},{khz / 1e6:.6g},{each:.4g},{process[chip]},{int(chip in shared)},{power:.5g}")
    POINTS_FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines) - 2} points of {len({k[0] for k in runs})} chips")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
