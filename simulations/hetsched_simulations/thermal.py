"""The thermal network: heat capacities joined by resistances, ambient held at its temperature.

``C dT/dt = P - G (T - T_ambient)`` with constant power between events is integrated exactly. ``C^-1/2 G C^-1/2`` is
symmetric, so it has real modes; each decays as ``exp(-rate t)``. The network form is HotSpot's (Skadron et al.,
*Temperature-aware microarchitecture*, ISCA 2003).

A sensor is a first-order lag behind a weighted mean of nodes, which takes no heat from them: ``tau dS/dt = w T + offset - S``. Its
response to every mode is known in closed form too, so sensors are further states of the same exact step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.costs import FloatArray
from hetsched.errors import OptionError, SoCError
from hetsched.soc_thermal import Thermal


@dataclass(frozen=True, eq=False, slots=True)
class Mix:
    """What a sensor shows: a mean of nodes with ``weights`` [n], plus ``offset_k``, ``lag_s`` late."""

    weights: FloatArray
    offset_k: float
    lag_s: float


@dataclass(frozen=True, eq=False, slots=True)
class Modes:
    """Independent modes ``z`` [m], each with ``dz/dt = into P - rate z``; temperatures are ``rest + out z``, and ``z = to (T - rest)``."""

    rates_per_s: FloatArray  # [m]
    to: FloatArray  # [m, n + s]
    into: FloatArray  # [m, n + s]
    out: FloatArray  # [n + s, m]
    rest_c: FloatArray  # [n + s]

    def mean_c(self, first_c: FloatArray, last_c: FloatArray, seconds: float) -> FloatArray:
        """[n + s] mean temperatures of a while that began and ended at these, under the same power throughout."""
        first, last = self.to @ (first_c - self.rest_c), self.to @ (last_c - self.rest_c)
        lapse = self.rates_per_s * seconds
        lost, tiny = -np.expm1(-lapse), lapse < 1e-4
        safe = np.where(tiny, 1.0, lapse)
        kept = np.where(tiny, 1.0 - lapse / 2, lost / safe)
        share = np.where(tiny, 0.5 + lapse / 12, (1.0 - kept) / np.where(tiny, 1.0, lost))
        return np.asarray(self.rest_c + self.out @ (share * last + (kept - share * (1.0 - lost)) * first))


class Network:
    """An RC network with ``n`` nodes and ``s`` sensors.

    Temperatures are arrays [n + s] in degrees Celsius, nodes first; powers are arrays [n + s] in watts, zero for sensors.
    """

    def __init__(
        self, capacity_j_per_k: FloatArray, conductance_w_per_k: FloatArray, to_ambient_w_per_k: FloatArray, ambient_c: float,
        sensors: Sequence[Mix] = (),
    ) -> None:  # fmt: skip
        """Build from capacities [n], conductances between nodes [n, n] (symmetric, zero diagonal) and to ambient [n].

        Raises:
            SoCError: a capacity is not positive.
        """
        if (capacity_j_per_k <= 0).any():
            raise SoCError("every thermal node needs a positive heat capacity")
        self.ambient_c = ambient_c
        self.laplacian = np.diag(conductance_w_per_k.sum(axis=1) + to_ambient_w_per_k) - conductance_w_per_k
        root = np.sqrt(capacity_j_per_k)
        rates, modes = np.linalg.eigh(self.laplacian / np.outer(root, root))
        self.rates_per_s = np.maximum(rates, 0.0)
        self._to_modes = modes.T * root
        self._from_modes = modes / root[:, None]
        self._mixes = np.array([m.weights for m in sensors]).reshape(len(sensors), len(root))
        self._lags_s = np.array([m.lag_s for m in sensors])
        self._offsets_k = np.array([m.offset_k for m in sensors])
        self._rest_c = self.with_sensors(np.full(len(root), ambient_c))
        self._steps: dict[float, tuple[FloatArray, FloatArray]] = {}
        self._independent: Modes | None = None

    @classmethod
    def of(cls, thermal: Thermal, ambient_c: float, cooling: float = 1.0) -> Network:
        """The network of a SoC file with its sensors.

        Args:
            thermal: of the SoC file.
            ambient_c: what its surface sees.
            cooling: by how much better than in the file the surface gives off heat.

        Raises:
            SoCError: no nodes, a resistance of zero, or one that joins ambient to itself.
        """
        names = [n.name for n in thermal.nodes]
        if not names:
            raise SoCError("the SoC has no thermal nodes: simulate with thermal=False or add a thermal network to its file")
        between = np.zeros((len(names), len(names)))
        outside = np.zeros(len(names))
        for r in thermal.resistances:
            inner = [names.index(n) for n in r.between if n != "ambient"]
            if float(r.k_per_w) <= 0 or not inner or (inner[0] == inner[-1] and len(inner) == 2):
                raise SoCError(f"the thermal resistance between {r.between[0]!r} and {r.between[1]!r} must be positive and join two nodes")
            if len(inner) == 1:
                outside[inner[0]] += cooling / float(r.k_per_w)
            else:
                between[inner[0], inner[1]] += 1.0 / float(r.k_per_w)
                between[inner[1], inner[0]] += 1.0 / float(r.k_per_w)
        mixes = [Mix(np.array([s.weights.get(n, 0.0) for n in names]), s.offset_k, s.lag_s) for s in thermal.sensors]
        return cls(np.array([float(n.capacity_j_per_k) for n in thermal.nodes]), between, outside, ambient_c, mixes)

    def modes(self) -> Modes:
        """The network and its sensors as independent modes. A sensor with a lag adds one of its own, fed by what feeds the nodes."""
        if self._independent is None:
            self._independent = self._as_modes()
        return self._independent

    def _as_modes(self) -> Modes:
        late = self._lags_s > 0
        # A lag that is exactly as fast as a mode would share it: a millionth apart is as good.
        lags = self._lags_s[late] * np.where(np.isclose(np.outer(self._lags_s[late], self.rates_per_s), 1.0).any(axis=1), 1.000001, 1.0)
        seen = self._mixes @ self._from_modes
        shown = seen.copy()
        shown[late] = seen[late] / (1.0 - lags[:, None] * self.rates_per_s)
        n, s = len(self.rates_per_s), len(self._lags_s)
        own = np.eye(s)[:, late]
        out = np.block([[self._from_modes, np.zeros((n, len(lags)))], [shown, own]])
        to = np.block([[self._to_modes, np.zeros((n, s))], [-(own.T @ shown) @ self._to_modes, own.T]])
        into = np.block([[self._from_modes.T], [-(own.T @ shown) @ self._from_modes.T]])
        into = np.concatenate([into, np.zeros((len(into), s))], axis=1)
        return Modes(np.concatenate([self.rates_per_s, 1.0 / lags]), to, into, out, self._rest_c)

    def with_sensors(self, node_c: FloatArray) -> FloatArray:
        """[n + s] temperatures of the nodes ([n]) and of the sensors once these have caught up."""
        return np.concatenate([node_c, self._mixes @ node_c + self._offsets_k])

    def transition(self, dt_s: float) -> tuple[FloatArray, FloatArray]:
        """``(A, B)`` with ``T(t + dt) - T_rest = A (T(t) - T_rest) + B P``, both [n + s, n + s]; at rest nodes are at ambient."""
        rates = self.rates_per_s
        decay = np.exp(-rates * dt_s)
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(rates > 0, -np.expm1(-rates * dt_s) / rates, dt_s)
        nodes = (self._from_modes * decay) @ self._to_modes, (self._from_modes * gain) @ self._from_modes.T
        return self._and_sensors(nodes, decay, dt_s) if len(self._lags_s) else nodes

    def _and_sensors(self, nodes: tuple[FloatArray, FloatArray], decay: FloatArray, dt_s: float) -> tuple[FloatArray, FloatArray]:
        """The same with the rows of the sensors: what they show of modes that decay and of those that powers feed."""
        rates, lags = self.rates_per_s, self._lags_s
        n, late = len(rates), lags > 0
        lag = np.where(late, lags, 1.0)
        caught_up = np.where(late, -np.expm1(-dt_s / lag), 1.0)
        shown = np.where(late[:, None], _late_decay(rates, lag[:, None], dt_s), decay)
        with np.errstate(divide="ignore", invalid="ignore"):
            fed = np.where(rates > 0, (caught_up[:, None] - shown) / rates, (dt_s - lags * caught_up)[:, None])
        a, b = np.zeros((2, n + len(lags), n + len(lags)))
        a[:n, :n], b[:n, :n] = nodes
        seen = self._mixes @ self._from_modes
        a[n:, :n], b[n:, :n] = (seen * shown) @ self._to_modes, (seen * fed) @ self._from_modes.T
        a[n:, n:] = np.diag(1.0 - caught_up)
        return a, b

    def step(self, node_c: FloatArray, power_w: FloatArray, dt_s: float) -> FloatArray:
        """Temperatures ``dt_s`` later under constant power."""
        return self._apply(self.transition(dt_s), node_c, power_w)

    def grid_step(self, node_c: FloatArray, power_w: FloatArray, dt_s: float) -> FloatArray:
        """The same for the few step lengths of a polling grid: steps that agree to a nanosecond share their matrices."""
        return self._apply(self._grid(dt_s), node_c, power_w)

    def _grid(self, dt_s: float) -> tuple[FloatArray, FloatArray]:
        key = round(dt_s, 9)
        if key not in self._steps:
            if len(self._steps) >= 1024:
                self._steps.clear()
            self._steps[key] = self.transition(dt_s)
        return self._steps[key]

    def rise(self, power_w: FloatArray, dt_s: float) -> FloatArray:
        """By how much warmer everything is after ``dt_s`` for so much more power."""
        return np.asarray(self._grid(dt_s)[1] @ power_w)

    def _apply(self, matrices: tuple[FloatArray, FloatArray], node_c: FloatArray, power_w: FloatArray) -> FloatArray:
        a, b = matrices
        return np.asarray(self._rest_c + a @ (node_c - self._rest_c) + b @ power_w)

    def steady(self, power_w: FloatArray) -> FloatArray:
        """Temperatures after infinite time under constant power.

        Raises:
            SoCError: some node has no path to ambient, so it never settles.
        """
        if self.rates_per_s[0] <= 1e-12 * self.rates_per_s[-1]:
            raise SoCError("a thermal node has no path to 'ambient': add a resistance to it")
        return self.with_sensors(np.asarray(self.ambient_c + np.linalg.solve(self.laplacian, power_w[: len(self.rates_per_s)])))


def _late_decay(rates_per_s: FloatArray, lag_s: FloatArray, dt_s: float) -> FloatArray:
    """``(exp(-r t) - exp(-t / lag)) / (1 - r lag)``: what a lag shows of a mode that decays; also where both are as fast."""
    apart = np.abs(1.0 / lag_s - rates_per_s) * dt_s
    with np.errstate(invalid="ignore"):
        mean = np.where(apart > 0, -np.expm1(-apart) / apart, 1.0)
    return np.asarray(dt_s / lag_s * np.exp(-np.minimum(rates_per_s, 1.0 / lag_s) * dt_s) * mean)


def initial_temperatures(thermal: Thermal, ambient_c: float, initial_c: float | Mapping[str, float] | None) -> FloatArray:
    """[n + s] temperatures at the start (one without nodes): ambient, one figure for all, or by node (the rest at ambient).

    Sensors show what they would after long.

    Raises:
        OptionError: a name is not a thermal node.
    """
    names = [n.name for n in thermal.nodes]
    if isinstance(initial_c, Mapping):
        for name in initial_c:
            if name not in names:
                raise OptionError(f"{name!r} is not a thermal node of this SoC: use {', '.join(names)}")
    given = initial_c if isinstance(initial_c, Mapping) else {}
    everywhere = float(initial_c) if isinstance(initial_c, (int, float)) else ambient_c
    node_c = {n: float(given.get(n, everywhere)) for n in names}
    shown = [s.offset_k + sum(w * node_c[n] for n, w in s.weights.items()) for s in thermal.sensors]
    return np.array([*node_c.values(), *shown] or [everywhere])
