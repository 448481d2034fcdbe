"""Shapes that a file states for its tensors: the last resort where control flow hides them from inference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


class DeclaredShapes:
    """Tensor name -> shape, as the ``value_info`` and the outputs of graphs state it.

    Args:
        infos: names and what is stated of them; the first of a name counts.
        dims: values of symbolic dims.
        around: what the graph around states.
    """

    def __init__(
        self,
        infos: Iterable[tuple[str, onnx.ValueInfoProto]] = (),
        dims: Mapping[str, int] | None = None,
        around: DeclaredShapes | None = None,
    ) -> None:
        self._infos: dict[str, onnx.ValueInfoProto] = {}
        for name, info in infos:
            self._infos.setdefault(name, info)
        self._dims: dict[str, int] = dict(dims or {}) if around is None else around._dims
        self._around = around

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The stated shape of a tensor; None unless every dim of it is known."""
        info = self._infos.get(name)
        if info is None:
            return None if self._around is None else self._around.shape(name)
        tensor = info.type.tensor_type
        if not info.type.HasField("tensor_type") or not tensor.HasField("shape"):
            return None
        sizes = [self._dims.get(d.dim_param, -1) if d.HasField("dim_param") else d.dim_value for d in tensor.shape.dim]
        return tuple(sizes) if all(size > 0 for size in sizes) else None
