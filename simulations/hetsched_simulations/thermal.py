"""The thermal network: heat capacities joined by resistances, ambient held at its temperature.

``C dT/dt = P - G (T - T_ambient)`` with constant power between events is integrated exactly. ``C^-1/2 G C^-1/2`` is
symmetric, so it has real modes; each decays as ``exp(-rate t)``. The network form is HotSpot's (Skadron et al.,
*Temperature-aware microarchitecture*, ISCA 2003).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hetsched.costs import FloatArray
from hetsched.errors import OptionError, SoCError
from hetsched.soc_thermal import Thermal


class Network:
    """An RC network with ``n`` nodes; temperatures are arrays [n] in degrees Celsius, powers arrays [n] in watts."""

    def __init__(
        self, capacity_j_per_k: FloatArray, conductance_w_per_k: FloatArray, to_ambient_w_per_k: FloatArray, ambient_c: float
    ) -> None:
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
        self._steps: dict[float, tuple[FloatArray, FloatArray]] = {}

    @classmethod
    def of(cls, thermal: Thermal, ambient_c: float) -> Network:
        """The network of a SoC file.

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
                outside[inner[0]] += 1.0 / float(r.k_per_w)
            else:
                between[inner[0], inner[1]] += 1.0 / float(r.k_per_w)
                between[inner[1], inner[0]] += 1.0 / float(r.k_per_w)
        return cls(np.array([float(n.capacity_j_per_k) for n in thermal.nodes]), between, outside, ambient_c)

    def transition(self, dt_s: float) -> tuple[FloatArray, FloatArray]:
        """``(A, B)`` with ``T(t + dt) - T_ambient = A (T(t) - T_ambient) + B P``, both [n, n]."""
        decay = np.exp(-self.rates_per_s * dt_s)
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(self.rates_per_s > 0, -np.expm1(-self.rates_per_s * dt_s) / self.rates_per_s, dt_s)
        return (self._from_modes * decay) @ self._to_modes, (self._from_modes * gain) @ self._from_modes.T

    def step(self, node_c: FloatArray, power_w: FloatArray, dt_s: float) -> FloatArray:
        """Temperatures ``dt_s`` later under constant power."""
        return self._apply(self.transition(dt_s), node_c, power_w)

    def grid_step(self, node_c: FloatArray, power_w: FloatArray, dt_s: float) -> FloatArray:
        """The same for the few step lengths of a polling grid: steps that agree to a nanosecond share their matrices."""
        key = round(dt_s, 9)
        if key not in self._steps:
            if len(self._steps) >= 1024:
                self._steps.clear()
            self._steps[key] = self.transition(dt_s)
        return self._apply(self._steps[key], node_c, power_w)

    def _apply(self, matrices: tuple[FloatArray, FloatArray], node_c: FloatArray, power_w: FloatArray) -> FloatArray:
        a, b = matrices
        return np.asarray(self.ambient_c + a @ (node_c - self.ambient_c) + b @ power_w)

    def steady(self, power_w: FloatArray) -> FloatArray:
        """Temperatures after infinite time under constant power.

        Raises:
            SoCError: some node has no path to ambient, so it never settles.
        """
        if self.rates_per_s[0] <= 1e-12 * self.rates_per_s[-1]:
            raise SoCError("a thermal node has no path to 'ambient': add a resistance to it")
        return np.asarray(self.ambient_c + np.linalg.solve(self.laplacian, power_w))


def initial_temperatures(thermal: Thermal, ambient_c: float, initial_c: float | Mapping[str, float] | None) -> FloatArray:
    """[n] temperatures at the start (one without nodes): ambient, one figure for all, or by node (the rest at ambient).

    Raises:
        OptionError: a name is not a thermal node.
    """
    names = [n.name for n in thermal.nodes]
    if isinstance(initial_c, Mapping):
        for name in initial_c:
            if name not in names:
                raise OptionError(f"{name!r} is not a thermal node of this SoC: use {', '.join(names)}")
        return np.array([float(initial_c.get(n, ambient_c)) for n in names])
    return np.full(max(len(names), 1), ambient_c if initial_c is None else float(initial_c))
