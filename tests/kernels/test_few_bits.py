"""Weights of a few bits: GGUF's blocks against the reference decoder, packing, parts of a product."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.reference.gguf_types import decode
from hetsched_kernels import codes
from hetsched_kernels.arrays import NO_F32
from hetsched_kernels.comparison_language import gguf_blocks, quantized_rows
from hetsched_kernels.few_bits import GROUP, STRIDE, K, pack_groups
from hetsched_kernels.gemm_groups import gemm_groups_f32, gemm_groups_scratch, gemm_twofold_f32
from hetsched_kernels.gguf_groups import BLOCKS, gguf_groups
from hetsched_kernels.groups import Groups
from hetsched_kernels.kv_cache import cache_geometry
from hetsched_kernels.tile import LANES


@pytest.mark.parametrize("kind", sorted(BLOCKS))
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 5), blocks=st.integers(1, 3))
def test_blocks_are_read_as_the_reference_decodes_them(kind: str, seed: int, n: int, blocks: int) -> None:
    k = blocks * BLOCKS[kind][0]
    raw = gguf_blocks(np.random.default_rng(seed), kind, n, k)
    np.testing.assert_array_equal(gguf_groups(kind, raw, n, k).reals(), decode(kind, raw).reshape(n, k))


def test_packing_keeps_blocks_about_as_small_as_they_were() -> None:
    for kind, (elements, nbytes) in BLOCKS.items():
        raw = gguf_blocks(np.random.default_rng(0), kind, 4 * LANES, 4 * elements)
        data, shape = pack_groups(gguf_groups(kind, raw, 4 * LANES, 4 * elements))
        assert data.size == 4 * shape[STRIDE]
        assert data.ctypes.data % 64 == 0
        assert data.size <= 1.06 * 16 * LANES * nbytes + 4 * 4 * 64  # 6 bits' scales and lines that are not full


@pytest.mark.parametrize(
    ("bits", "group", "mins", "message"),
    [
        (3, 32, False, "no kernel for 3-bit weights without minima"),
        (8, 32, True, "no kernel for 8-bit weights with minima"),
        (4, 16, False, "4-bit weights in groups of 16"),
        (6, 32, False, "6-bit weights in groups of 32"),
    ],
)
def test_what_has_no_kernel_is_refused(bits: int, group: int, mins: bool, message: str) -> None:
    scales = np.ones((3, 2), np.float32)
    with pytest.raises(ValueError, match=message):
        pack_groups(Groups(np.zeros((3, 2 * group), np.uint8), bits, group, scales, scales if mins else None))


def test_blocks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="no kernel for weights stored as IQ4_NL"):
        gguf_groups("IQ4_NL", np.zeros(18, np.uint8), 1, 32)
    with pytest.raises(ValueError, match="17 bytes are not 1 rows of 32 values in blocks of Q4_0"):
        gguf_groups("Q4_0", np.zeros(17, np.uint8), 1, 32)
    with pytest.raises(ValueError, match="9 query heads of 64 elements cannot share 2"):
        cache_geometry(9, 2, 64)
    with pytest.raises(ValueError, match="multiple of 16 tokens, not 20"):
        cache_geometry(9, 3, 64, page=20)


@given(seed=st.integers(0, 2**32 - 1), m=st.sampled_from([1, 3]), panels=st.integers(1, 4))
def test_parts_of_a_product_are_the_product_bit_for_bit(seed: int, m: int, panels: int) -> None:
    """However many threads take its columns."""
    rng = np.random.default_rng(seed)
    n, k = panels * LANES - 3, 96
    packed = pack_groups(gguf_groups("Q4_1", gguf_blocks(rng, "Q4_1", n, k), n, k))
    x = rng.standard_normal((m, k)).astype(np.float32)
    q = quantized_rows(x, int(packed.shape[K]), int(packed.shape[GROUP]))
    whole, parts = np.full(m * n, np.nan, np.float32), np.full(m * n, np.nan, np.float32)
    scratch = np.empty(gemm_groups_scratch(packed.shape), np.float32)
    for out, edges in ((whole, [0, n]), (parts, [*range(0, n, LANES), n])):
        for first, last in pairwise(edges):
            gemm_groups_f32(*q, *packed, NO_F32, out, scratch, m, first, last, codes.NONE, 0.0, 0.0)
    np.testing.assert_array_equal(whole, parts)


@pytest.mark.parametrize("kind", sorted(BLOCKS))
def test_rows_are_those_of_products_of_one_row_bit_for_bit(kind: str) -> None:
    """However many there are: few meet the weights as they are stored, more a decoded panel, vectors or tile registers."""
    rng = np.random.default_rng(0)
    n, k, most = 9 * LANES - 3, BLOCKS[kind][0] * 3, 40
    packed, bias = pack_groups(gguf_groups(kind, gguf_blocks(rng, kind, n, k), n, k)), rng.standard_normal(n).astype(np.float32)
    q = quantized_rows(rng.standard_normal((most, k)).astype(np.float32), int(packed.shape[K]), int(packed.shape[GROUP]))
    scratch = np.full(gemm_groups_scratch(packed.shape), np.nan, np.float32)
    for kernel, each in ((gemm_groups_f32, 1), (gemm_twofold_f32, 2)):
        singles = np.full((most // each, n), np.nan, np.float32)
        for r, out in enumerate(singles):
            row = [part.reshape(most // each, -1)[r] for part in q]
            kernel(*row, *packed, bias, out, scratch, 1, 0, n, codes.NONE, 0.0, 0.0)
        for m in (*range(2, 18), most // each):
            several = np.full((m + 1) * n, np.nan, np.float32)
            kernel(*q, *packed, bias, several, scratch, m, 0, n, codes.NONE, 0.0, 0.0)
            np.testing.assert_array_equal(several.reshape(m + 1, n)[:m], singles[:m])
            assert np.isnan(several[m * n :]).all()
