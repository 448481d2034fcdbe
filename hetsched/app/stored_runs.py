"""Plan files that ran here before: they run from their stored executables, without the model, the passes or numba.

An entry (:mod:`hetsched.runtime.executable_cache`) also holds what a run says of itself and the seeded noise that it ran on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetsched.runtime import executable_cache as cache
from hetsched.runtime.executable_files import Contents

if TYPE_CHECKING:
    from hetsched.app.planned import Planned
    from hetsched.runtime import Executable

Arrays = Mapping[str, npt.NDArray[Any]]
#: Larger inputs are drawn again each time.
_LARGEST_NOISE = 64 << 20


@dataclass(frozen=True, slots=True)
class Said:
    """What a run says of its plan.

    Attributes:
        model: name of the graph.
        soc: id of the SoC.
        predicted_s: predicted latency.
        interval_s: where 80 % of cases are.
        calibrated: smallest and largest value of inputs that the plan's ranges file has.
        runners: names of the delegates of each queue.
    """

    model: str
    soc: str
    predicted_s: float
    interval_s: tuple[float, float]
    calibrated: Mapping[str, tuple[float, float]]
    runners: Mapping[str, tuple[str, ...]]


class Place:
    """Where the executable of a plan file is, or will be.

    Args:
        path: the plan file.
        level: the throttle level.
    """

    def __init__(self, path: Path, level: int) -> None:
        self._began = time.time_ns()
        self._key = cache.key_of(path.read_bytes(), path, level)

    def find(self) -> Stored | None:
        """What an earlier process left, if it may be used."""
        contents = cache.find(self._key)
        if contents is None:
            return None
        from hetsched.runtime.loading import load

        try:
            return Stored(load(contents), contents)
        except OSError:  # this system does not let code be mapped
            return None

    def keep(self, executable: Executable, planned: Planned, said: Said, noise: tuple[int, Arrays] | None) -> None:
        """Leave an executable to later processes, if it can be stored.

        Args:
            executable: what ran.
            planned: what it was compiled of.
            said: what later runs say of it.
            noise: the seed and the inputs that were drawn with it.
        """
        from hetsched.runtime.storing import UnstorableError, contents_of

        graph = planned.graph
        weights = (t.data.path for t in (*graph.tensors.values(), *graph.first_values.values()) if t.data is not None)
        files = [p for p in (graph.source, planned.ranges_path, *weights) if p is not None]
        known = cache.identities(files, self._began) if graph.source is not None else None
        if known is None:
            return
        try:
            contents = contents_of(executable)
        except UnstorableError:
            return
        seed, feeds = noise if noise is not None and sum(a.nbytes for a in noise[1].values()) <= _LARGEST_NOISE else (None, {})
        about = {"files": known, "noise_seed": seed, "said": {name: getattr(said, name) for name in Said.__slots__}}
        arrays = {f"noise.{name}": np.ascontiguousarray(a).reshape(-1).view(np.uint8) for name, a in feeds.items()}
        cache.store(self._key, Contents({**contents.manifest, **about}, {**contents.arrays, **arrays}, contents.pieces))


class Stored:
    """A stored executable, ready to run, and what was stored with it."""

    def __init__(self, executable: Executable, contents: Contents) -> None:
        self.executable = executable
        self._contents = contents
        said = contents.manifest["said"]
        self.said = Said(
            said["model"], said["soc"], said["predicted_s"], tuple(said["interval_s"]),
            {n: (low, high) for n, (low, high) in said["calibrated"].items()}, {q: tuple(names) for q, names in said["runners"].items()},
        )  # fmt: skip

    def noise(self, seed: int) -> dict[str, npt.NDArray[Any]] | None:
        """The inputs that are drawn with ``seed``; None if they were not kept."""
        if self._contents.manifest["noise_seed"] != seed:
            return None
        graph, arrays = self.executable.graph, self._contents.arrays
        return {n: arrays[f"noise.{n}"].view(graph.tensors[n].dtype.numpy).reshape(graph.tensors[n].shape) for n in graph.inputs}
