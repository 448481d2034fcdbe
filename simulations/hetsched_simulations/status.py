"""What the phone's system tells its apps about heat: Android's thermal status and headroom, iOS's thermal state.

Android's service samples the skin once a second. A severity holds from its threshold on and until the skin is a hysteresis below
it. Headroom is ``max(0, (T - (T_severe - 30 °C)) / 30 °C)``: 1 at SEVERE. Its forecast adds the least-squares slope over the
last 30 samples to the oldest of them; with fewer than 3 it is the present headroom (AOSP's ``ThermalManagerService``).

Apple publishes no temperatures; its states are read off the same thresholds by what Apple and Android say of them
(estimated): *fair* as LIGHT, *serious* (the system lowers performance) as MODERATE and SEVERE, *critical* from CRITICAL on.
A SoC file may have thresholds of its own (``thermal.status``); headroom is Android's alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.costs import FloatArray
from hetsched.socs import SoC
from hetsched.trace import Counter, Instant, Trace
from hetsched_simulations.history import Columns, write_points
from hetsched_simulations.sensors import Sampling

SEVERITIES = ("NONE", "LIGHT", "MODERATE", "SEVERE", "CRITICAL", "EMERGENCY", "SHUTDOWN")
THRESHOLDS_C = (39.0, 43.0, 45.0, 46.5, 52.0, 55.0)
"""Of the skin, from LIGHT on: the Pixel 8's thermal HAL; no other vendor's are known."""
HYSTERESIS_K = (1.9, 1.9, 1.9, 1.4, 1.9, 1.9)
"""Of the same HAL."""
STATES = ("nominal", "fair", "serious", "critical")
IOS_THRESHOLDS_C, IOS_HYSTERESIS_K = (39.0, 43.0, 46.5), (1.9, 1.9, 1.4)
"""From fair on: those of LIGHT, MODERATE and CRITICAL (estimated)."""
SAMPLE_S = 1.0
REMEMBERED, FEWEST = 30, 3
HEADROOM_SPAN_K = 30.0
FORECAST_S = 10.0

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class ThermalStatus:
    """A run in the eyes of an app; one sample a second: skin temperature, level (an index into ``names``), headroom."""

    api: str
    """``android`` or ``ios``; on the latter there is no headroom."""
    names: tuple[str, ...]
    end_s: float
    skin_c: FloatArray
    level: IntArray
    headroom: FloatArray | None
    forecast: FloatArray | None
    """Headroom :data:`FORECAST_S` later, as the system forecasts it."""

    @property
    def times_s(self) -> FloatArray:
        """Times of the samples."""
        return np.asarray(SAMPLE_S * np.arange(len(self.skin_c)), float)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the worst and the last level, seconds at each that occurred, when each was first reached, headroom."""
        seconds = np.diff(np.append(self.times_s, self.end_s))
        reached = sorted(set(self.level.tolist()))
        out: dict[str, Any] = {
            "api": self.api,
            "worst": self.names[int(self.level.max())],
            "last": self.names[int(self.level[-1])],
            "seconds": {self.names[k]: float(seconds[self.level == k].sum()) for k in reached},
            "first_s": {self.names[k]: float(self.times_s[np.argmax(self.level == k)]) for k in reached},
            "skin_c": {"max": float(self.skin_c.max()), "last": float(self.skin_c[-1])},
        }
        if self.headroom is not None and self.forecast is not None:
            out["headroom"] = {
                "max": float(self.headroom.max()),
                "last": float(self.headroom[-1]),
                "forecast_10s": float(self.forecast[-1]),
            }
        return out

    def write(self, trace: Trace) -> None:
        """Add counters and an instant for every change of the level to a trace."""
        changes = np.flatnonzero(np.diff(self.level, prepend=self.level[0]))
        at = [0, *changes.tolist()]
        times = [*self.times_s[at].tolist(), self.end_s]
        levels = [float(self.level[k]) for k in [*at, len(self.level) - 1]]
        trace.counters[f"status/{self.api}"] = Counter(f"status/{self.api}", "level", times, levels)
        trace.instants += [
            Instant("status", self.names[int(self.level[k])], float(self.times_s[k]), f"skin {self.skin_c[k]:.2f} °C") for k in changes
        ]
        trace.instants.sort(key=lambda i: i.time_s)
        for name, values in (("now", self.headroom), ("forecast", self.forecast)):
            if values is not None:
                write_points(trace, f"headroom/{name}", "1", self.times_s, values)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From which skin temperature on each level but the first holds, and how far below it stops."""

    names: tuple[str, ...]
    from_c: tuple[float, ...]
    hysteresis_k: tuple[float, ...]

    @classmethod
    def of(cls, soc: SoC) -> Thresholds:
        """Of the SoC's file, else of its system."""
        given = soc.thermal.status
        if given:
            android = given[0].name in SEVERITIES
            names = SEVERITIES if android else STATES
            return cls(names, tuple(float(v.from_c) for v in given), tuple(float(v.hysteresis_k) for v in given))
        return APPLES if soc.vendor == "Apple" else PIXELS

    @property
    def critical_c(self) -> float:
        """From which skin temperature on the heat is critical, Android's severity or Apple's state."""
        return next(c for name, c in zip(self.names[1:], self.from_c, strict=True) if name.lower() == "critical")


PIXELS = Thresholds(SEVERITIES, THRESHOLDS_C, HYSTERESIS_K)
APPLES = Thresholds(STATES, IOS_THRESHOLDS_C, IOS_HYSTERESIS_K)


def thermal_status(soc: SoC, columns: Columns, final_c: FloatArray) -> ThermalStatus | None:
    """What an app sees during a run; None for a SoC whose file has no skin trips, or that runs neither Android nor Apple's systems.

    Args:
        soc: the SoC.
        columns: the run's history.
        final_c: temperatures of its nodes and sensors at the end, [n + s].
    """
    apple = soc.vendor == "Apple"
    points, watched = soc.thermal.skin, {soc.thermal.points[i] for i in (*soc.thermal.skin, *soc.thermal.outer)}
    laptop = soc.market is not None and soc.market.tier == "laptop"
    if not any(watched.intersection(t.read) for t in soc.thermal.trips) or (laptop and not apple):
        return None
    end = float(columns.start_s[-1] + columns.seconds[-1])
    times, nodes = np.append(columns.start_s, end), np.vstack([columns.node_c, final_c])
    asked, sampling = np.arange(0.0, end, SAMPLE_S), Sampling.of(soc.thermal)
    sampled = np.max([sampling.seen(p, times, asked, nodes[:, p]) for p in points], axis=0)
    thresholds = Thresholds.of(soc)
    level = levels(sampled, thresholds)
    if thresholds.names == STATES:
        return ThermalStatus("ios", STATES, end, sampled, level, None, None)
    severe_c = thresholds.from_c[2]
    return ThermalStatus("android", SEVERITIES, end, sampled, level, headroom(sampled, severe_c), forecasts(sampled, severe_c))


def levels(skin_c: FloatArray, thresholds: Thresholds = PIXELS) -> IntArray:
    """Level (0..6 or 0..3) at every sample: it rises at the thresholds at once and falls a hysteresis below them.

    Examples:
        >>> levels(np.array([38.0, 39.0, 43.5, 42.0, 41.0, 37.0])).tolist()
        [0, 1, 2, 2, 1, 0]
    """
    from_c = np.array(thresholds.from_c)
    rising = np.searchsorted(from_c, skin_c, side="right")
    falling = np.searchsorted(from_c - thresholds.hysteresis_k, skin_c, side="left")
    out, level = [], 0
    for up, down in zip(rising.tolist(), falling.tolist(), strict=True):
        level = max(up, min(level, down))
        out.append(level)
    return np.array(out, np.int64)


def headroom(skin_c: FloatArray, severe_c: float = THRESHOLDS_C[2]) -> FloatArray:
    """Thermal headroom at a skin temperature: 0 at 30 °C below SEVERE and colder, 1 at SEVERE, above it more."""
    return np.asarray(np.maximum((skin_c - (severe_c - HEADROOM_SPAN_K)) / HEADROOM_SPAN_K, 0.0))


def forecasts(skin_c: FloatArray, severe_c: float = THRESHOLDS_C[2]) -> FloatArray:
    """Headroom :data:`FORECAST_S` ahead, at every sample, for an app that asks once a second from the start."""
    forecast = skin_c.astype(float)
    for n in range(FEWEST, min(REMEMBERED, len(skin_c) + 1)):
        forecast[n - 1] = skin_c[0] + FORECAST_S * float(_slope(n) @ skin_c[:n])
    if len(skin_c) >= REMEMBERED:
        windows = np.lib.stride_tricks.sliding_window_view(skin_c, REMEMBERED)
        forecast[REMEMBERED - 1 :] = windows[:, 0] + FORECAST_S * (windows @ _slope(REMEMBERED))
    return headroom(forecast, severe_c)


def _slope(n: int) -> FloatArray:
    """[n] weights whose product with ``n`` samples is their least-squares slope in a second."""
    t = SAMPLE_S * (np.arange(n) - (n - 1) / 2)
    return np.asarray(t / (t @ t))
