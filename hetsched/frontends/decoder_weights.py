"""Finding a weight by its role, whatever the file calls it, and checking its shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hetsched.errors import ModelError
from hetsched.graph import DType, Role, Tensor, WeightRef

#: Role (GGUF's name of the weight, e.g. ``blk.0.attn_q.weight``) -> names to look for, best first.
Naming = Callable[[str], tuple[str, ...]]


def same(role: str) -> tuple[str, ...]:
    """GGUF's own naming: the role is the name."""
    return (role,)


@dataclass(frozen=True)
class Weights:
    """The weights of a model.

    Attributes:
        tensors: descriptions from the file's header; None where there is no file and all are to be assumed.
        names: how the file names roles.
        where: the file, for messages.
        dtype: type of the weights that are assumed.
        path: the (absent) file of the weights that are assumed.
    """

    tensors: Mapping[str, Tensor] | None
    names: Naming
    where: str
    dtype: DType = DType.F16
    path: Path | None = None

    def get(self, role: str, *shape: int) -> Tensor:
        """The weight with a role and a shape.

        Raises:
            ModelError: it is absent or has another shape.
        """
        found = self.find(role, *shape)
        if found is None:
            raise ModelError(f"{self.where} has no weight {self.names(role)[0]!r}: it is incomplete or its description is damaged")
        return found

    def find(self, role: str, *shape: int, expected: bool = True) -> Tensor | None:
        """The weight with a role and a shape, None where it is absent.

        Where all weights are assumed, it is there if ``expected``.
        """
        candidates = self.names(role)
        if self.tensors is None:
            return self._assumed(candidates[0], shape) if expected else None
        name = next((n for n in candidates if n in self.tensors), None)
        if name is None:
            return None
        tensor = self.tensors[name]
        if tensor.shape != shape and [d for d in tensor.shape if d != 1] != [d for d in shape if d != 1]:
            raise ModelError(
                f"the weight {name!r} of {self.where} has the shape {list(tensor.shape)} where {list(shape)} is expected: "
                "the weights do not fit the description"
            )
        return tensor

    def has(self, role: str) -> bool:
        """Whether a file lists the weight; False where all are assumed."""
        return self.tensors is not None and any(n in self.tensors for n in self.names(role))

    def module(self, role: str) -> str:
        """The file's name of the module that the role belongs to."""
        candidates = self.names(role)
        name = next((n for n in candidates if self.tensors is not None and n in self.tensors), candidates[0])
        return name.removesuffix(".weight").removesuffix(".bias")

    def _assumed(self, name: str, shape: tuple[int, ...]) -> Tensor:
        nbytes = (math.prod(shape) * self.dtype.bits + 7) // 8
        return Tensor(name, shape, self.dtype, Role.WEIGHT, None, WeightRef(self.path, 0, nbytes))
