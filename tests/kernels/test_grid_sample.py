"""What lies beyond an image's border is the padding, whatever the image holds, and no position leads outside its memory."""

import numpy as np
import pytest

from hetsched_kernels import grid_sample as g


def _sampled(x: np.ndarray, grid: np.ndarray, mode: str, padding: str) -> np.ndarray:
    n, channels, h, w = x.shape
    out = np.full(n * channels * len(grid), np.nan, np.float32)
    sizes = (n, channels, h, w, len(grid), g.MODE[mode], g.PADDING[padding], False)
    g.grid_sample_f32(x.reshape(-1), np.tile(grid.reshape(-1), n), out, np.full(g.SCRATCH, np.nan, np.float32), *sizes)
    return out.reshape(n, channels, -1)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_beyond_the_border_is_zero_even_where_no_pixel_is_finite(mode: str, value: float) -> None:
    grid = np.array([[3, 3], [-3, 0], [0, -3], [1e30, 0], [-1e30, 1e30]], np.float32)
    np.testing.assert_array_equal(_sampled(np.full((2, 3, 4, 5), value, np.float32), grid, mode, "zeros"), 0)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_strange_positions_stay_with_the_image(mode: str, padding: str) -> None:
    strange = np.array([[np.nan, 0], [0, np.nan], [np.inf, -np.inf], [1e38, -1e38], [-1e19, 3e9]], np.float32)
    plain = np.array([[0.1, 0.2], [-0.7, 0.9]], np.float32)
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 5)).astype(np.float32)
    got = _sampled(x, np.concatenate([strange, plain]), mode, padding)
    np.testing.assert_array_equal(got[..., len(strange) :], _sampled(x, plain, mode, padding))
    reach = np.abs(x).max() * (1.6**2)  # no weights of cubic interpolation add up to more
    assert (np.isnan(got) | (np.abs(got) <= reach)).all()
