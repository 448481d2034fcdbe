"""Windows that do not fit what they slide over are refused while loading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched.errors import ShapeError
from hetsched.frontends import load

Save = Callable[..., Path]


def conv(attributes: str = "", kernel: int = 8) -> str:
    values = ", ".join("1" for _ in range(kernel))
    return f"g (float[1, 1, n] x) => (float[1, 1, m] y) <float[1, 1, {kernel}] w = {{{values}}}> {{ y = Conv{attributes}(x, w) }}"


def pool(kind: str, attributes: str) -> str:
    return f"g (float[1, 1, n] x) => (float[1, 1, m] y) {{ y = {kind}<kernel_shape = [3], {attributes}>(x) }}"


@pytest.mark.parametrize(
    ("text", "enough"),
    [
        (conv(), 8),
        (conv("<strides = [4]>"), 8),  # rounding towards zero would make one window of it
        (conv("<pads = [2, 1]>"), 5),
        (conv("<dilations = [2]>"), 15),
        (conv('<auto_pad = "VALID">'), 8),
        (pool("MaxPool", "strides = [2]"), 3),
        (pool("AveragePool", "pads = [1, 0]"), 2),
    ],
)
def test_the_smallest_input_that_a_window_fits(save: Save, text: str, enough: int) -> None:
    path = save(text)
    assert load(path, {"n": enough}).tensors["y"].shape[-1] == 1
    with pytest.raises(ShapeError, match=rf"(Conv|Pool)\) has a window of .* does not fit .*the dims were given as n={enough - 1}"):
        load(path, {"n": enough - 1})


def test_windows_that_pad_as_much_as_they_need_always_fit(save: Save) -> None:
    assert load(save(conv('<auto_pad = "SAME_UPPER">')), {"n": 1}).tensors["y"].shape == (1, 1, 1)
