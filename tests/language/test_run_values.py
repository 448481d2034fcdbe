"""Programs with run-time values."""

from __future__ import annotations

import numpy as np

from hetsched.language.program_words import assemble
from hetsched.language.run_values import Descriptor, Value, View
from hetsched_kernels.binary import binary_f32
from hetsched_kernels.codes import ADD
from hetsched_kernels.norm import rms_norm_f32
from hetsched_kernels.program import Call, run_program


def test_counts_starts_and_sizes_follow_the_values() -> None:
    x, out = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    one = np.ones(1, np.int64)
    rows = View(x, Value("first", 4), Value("rows", 4))
    shape = Descriptor((Value("rows", 4),))
    add = Call(binary_f32, (), (rows, rows, View(out, Value("first", 4), Value("rows", 4)), ADD, shape, one, one))
    scaled = np.zeros(40, np.float32)
    norm = Call(rms_norm_f32, (), (View(x, Value("first", 4)), np.ones(4, np.float32), scaled, Value("rows"), 4, 1e-5))
    program = assemble([[add], [norm]], ["first", "rows"]).program
    whole, stop, stamps = program.program, np.zeros(1, np.int64), np.zeros(0, np.int64)
    for first, count in ((0, 2), (3, 1), (1, 5), (9, 0)):
        out[:], scaled[:] = 0, 0
        program.set({"first": first, "rows": count})
        run_program(whole.table, whole.steps, program.shared, stop, stamps, 0, 2, 1, 0)
        want = np.zeros((10, 4), np.float32)
        want[first : first + count] = 2 * x.reshape(10, 4)[first : first + count]
        np.testing.assert_array_equal(out.reshape(10, 4), want)
        own = x.reshape(10, 4)[first : first + count]
        expected = own / np.sqrt((own * own).mean(1, keepdims=True) + np.float32(1e-5))
        np.testing.assert_allclose(scaled.reshape(10, 4)[:count], expected, rtol=1e-6)
        assert not scaled[4 * count :].any()
