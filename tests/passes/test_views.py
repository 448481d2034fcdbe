"""Views against numpy: index arrays go through the same reshapes, transpositions and cuts."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.passes.views import View

SHAPES = st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4).map(tuple)


def indices(view: View) -> np.ndarray:
    """The source element of each of the view's."""
    out = np.zeros((), np.int64) + view.offset
    for axis in view.axes:
        steps = np.zeros(1, np.int64)
        for size, stride in axis:
            steps = (steps[:, None] + np.arange(size)[None, :] * stride).reshape(-1)
        out = out[..., None] + steps
    return out


def factored(draw: st.DrawFn, total: int) -> tuple[int, ...]:
    """A shape of ``total`` elements."""
    shape = []
    while total > 1 and len(shape) < 4:
        size = draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0]))
        shape.append(size)
        total //= size
    return (*shape, total)


@given(st.data())
def test_views_follow_numpy(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    view: View | None = View.of(shape)
    array = np.arange(math.prod(shape)).reshape(shape)
    for _ in range(data.draw(st.integers(1, 4))):
        if view is None:
            return
        if data.draw(st.booleans()):
            perm = data.draw(st.permutations(range(array.ndim)))
            view, array = view.transposed(perm), array.transpose(perm)
        else:
            wanted = data.draw(st.composite(lambda draw, n: factored(draw, n))(array.size))
            view, array = view.reshaped(wanted), array.reshape(wanted)
    if view is not None:
        assert view.shape == array.shape
        np.testing.assert_array_equal(indices(view), array)
        assert view.is_like(view.reshaped(array.shape) or view)


def constant(name: str, *values: int) -> Tensor:
    return Tensor(name, (len(values),), DType.I64, Role.WEIGHT, None, WeightRef(array=np.array(values)))


@given(SHAPES.filter(lambda s: len(s) > 1), st.data())
def test_cuts_follow_numpy(shape: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    start = data.draw(st.integers(0, shape[axis] - 1))
    stop = data.draw(st.integers(start + 1, shape[axis]))
    array = np.arange(math.prod(shape)).reshape(shape)
    cut = np.take(array, range(start, stop), axis)
    bounds = [constant("a", start), constant("b", stop), constant("c", axis)]
    tensors = [Tensor("x", shape, DType.F32), Tensor("y", cut.shape, DType.F32), *bounds]
    op = Op("cut", "Slice", ("x", "a", "b", "c"), ("y",))
    graph = Graph("g", {t.name: t for t in tensors}, (op,), ("x",), ("y",))
    view = View.of(shape).through(graph, op)
    assert view is not None
    np.testing.assert_array_equal(indices(view), cut)


def test_what_is_no_view() -> None:
    assert View.of((2, 3)).transposed((1, 0)).reshaped((2, 3)) is None
    assert View.of((6,)).reshaped((4,)) is None
