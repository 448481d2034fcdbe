"""What callers rely on besides the numbers: signatures, refusals, caching, fences, plans."""

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_kernels import code_cache, codes, fence, measure
from hetsched_kernels.binary import binary_f32
from hetsched_kernels.broadcast import broadcast_plan
from hetsched_kernels.cast import cast
from hetsched_kernels.chain import Operand, Step, compile_chain, operand_of
from hetsched_kernels.code_cache import source_digest
from hetsched_kernels.elementwise import unary_f32
from hetsched_kernels.gather import gather
from hetsched_kernels.window import conv_geometry


def test_a_type_without_a_variant_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="cast has no variant for complex64"):
        cast(np.zeros(1, np.complex64), np.zeros(1, np.float32))


def test_read_only_inputs_are_taken_and_read_only_outputs_refused() -> None:
    x, out = np.ones(3, np.float32), np.zeros(3, np.float32)
    x.flags.writeable = False
    unary_f32(x, out, codes.UNARY["Neg"], 0.0, 0.0)
    assert out.tolist() == [-1, -1, -1]
    with pytest.raises(TypeError):
        unary_f32(out, x, codes.UNARY["Neg"], 0.0, 0.0)


def test_wrong_dtype_is_refused() -> None:
    shape, (a, b) = broadcast_plan((3,), (3,))
    with pytest.raises(TypeError):
        binary_f32(np.ones(3), np.ones(3), np.ones(3), codes.ADD, shape, a, b)


def test_a_process_keeps_the_digests_of_the_sources_that_it_imported(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("a", "from hetsched_kernels.b import f\n"), ("b", ""), ("c", "from hetsched_kernels.b import f\n")):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr("hetsched_kernels.code_cache._PACKAGE", tmp_path)
    before = source_digest("a")
    (tmp_path / "b.py").write_text("x = 2\n")
    assert source_digest("a") == before
    made_late = source_digest("c")  # of the old b, which is what the process runs
    (tmp_path / "b.py").write_text("")
    code_cache._digest.cache_clear()
    code_cache._source.cache_clear()
    assert source_digest("c") == made_late


shapes = st.lists(st.integers(0, 4), max_size=4)


@given(shapes, st.data())
def test_broadcast_plan_walks_every_operand_as_numpy_does(shape: list[int], data: st.DataObject) -> None:
    def operand() -> tuple[int, ...]:
        kept = shape[data.draw(st.integers(0, len(shape))) :]
        return tuple(1 if data.draw(st.booleans()) else s for s in kept)

    first, second = operand(), operand()
    merged, strides = broadcast_plan(first, second, shape)
    for one, stride in zip((first, second, tuple(shape)), strides, strict=True):
        values = np.arange(int(np.prod(one)))
        walked = [int(np.dot(index, stride)) for index in np.ndindex(*merged)]
        assert [int(values[i]) for i in walked] == np.broadcast_to(
            values.reshape(one), np.broadcast_shapes(first, second, tuple(shape))
        ).ravel().tolist()


def test_broadcast_plan_merges_dimensions() -> None:
    shape, (a, b) = broadcast_plan((2, 3, 4, 5), (3, 1, 1))
    assert shape.tolist() == [2, 3, 20]
    assert a.tolist() == [60, 20, 1]
    assert b.tolist() == [0, 1, 0]


def test_chain_refuses_values_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="step 0 uses value 1"):
        compile_chain([Step(codes.TANH, (1,))], [Operand(1, 4)])
    with pytest.raises(ValueError, match="2 operands; give 1"):
        compile_chain([Step(codes.TANH, (0, 0))], [Operand(1, 4)])


def test_chain_operand_patterns() -> None:
    assert operand_of((1, 3, 1, 1), (2, 3, 4, 5)) == Operand(20, 3)
    assert operand_of((), (2, 3)) == Operand(6, 1)
    assert operand_of((3,), (2, 3)) == Operand(1, 3)
    assert operand_of((2, 1, 3), (2, 4, 3)) is None


def test_an_index_out_of_range_is_reported_and_not_read() -> None:
    out = np.full(2, 7, np.uint32)
    assert not gather(np.arange(3, dtype=np.uint32), np.array([1, 3]), out, 1, 3, 1)
    assert out.tolist() == [1, 7]


def test_geometry_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="3 to 4 channels cannot have 2 groups"):
        conv_geometry(1, 3, 5, 5, 4, 1, 1, groups=2)
    with pytest.raises(ValueError, match="does not fit"):
        conv_geometry(1, 3, 5, 5, 4, 7, 7)


def test_fences_order_data_between_threads() -> None:
    flags, data = np.zeros(16, np.int64), np.zeros(1, np.int64)
    seen: list[int] = []

    def consumer() -> None:
        for i in range(1, 200):
            while not fence.wait_ge(flags, 0, i, 10_000):
                pass
            seen.append(int(data[0]))
            fence.signal(flags, 8, i)

    thread = threading.Thread(target=consumer)
    fence.load(flags, 0)
    thread.start()
    for i in range(1, 200):
        data[0] = i * 10
        fence.signal(flags, 0, i)
        while not fence.wait_ge(flags, 8, i, 10_000):
            pass
    thread.join(10)
    assert seen == [i * 10 for i in range(1, 200)]


def test_wait_gives_up_after_its_spins() -> None:
    assert not fence.wait_ge(np.zeros(1, np.int64), 0, 1, 100)


def test_measurements_say_how_much_they_did() -> None:
    assert measure.peak_f32(10) == 10 * measure.peak_f32(1) > 0
    assert measure.peak_i8(10) == 10 * measure.peak_i8(1) > 0
    assert measure.read_bandwidth(np.zeros(1024, np.float32)) == 4096
