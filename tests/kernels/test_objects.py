"""Object code of kernels: linked and run without numba, it computes the same bits."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hetsched_kernels import code_cache, codes, elf, native, objects
from hetsched_kernels.binary import binary_f32
from hetsched_kernels.broadcast import broadcast_plan
from hetsched_kernels.chain import chain_f32
from hetsched_kernels.elementwise import unary_f32
from hetsched_kernels.fence import pause, signal, wait_ge
from hetsched_kernels.movement import copy_strided
from hetsched_kernels.tables import Image

pytestmark = pytest.mark.skipif(not native.usable(), reason="machine code is stored on x86-64 Linux only")

ENTRIES = ((unary_f32, ()), (binary_f32, ()), (copy_strided, ("uint32",)), *objects.OWN)


def bits(value: float) -> int:
    return int(struct.unpack("<i", struct.pack("<f", value))[0])


@pytest.fixture(scope="module")
def image() -> Image:
    return objects.link(ENTRIES)


def test_linked_kernels_compute_the_same_bits(image: Image) -> None:
    code = native.Native(image)
    x = np.linspace(-3, 3, 1000).astype(np.float32)
    for name in ("Exp", "Tanh", "Erf", "Clip"):
        ours, theirs = np.zeros_like(x), np.zeros_like(x)
        code.function(objects.symbol_of(unary_f32, ()))(x, ours, codes.UNARY[name], bits(-0.5), bits(0.5))
        unary_f32(x, theirs, codes.UNARY[name], -0.5, 0.5)
        np.testing.assert_array_equal(ours, theirs)
        assert ours.any()
    shape, (a, b) = broadcast_plan((4, 250), (250,))
    ours, theirs = np.zeros_like(x), np.zeros_like(x)
    power = codes.BINARY["Pow"]  # calls the C library
    code.function(objects.symbol_of(binary_f32, ()))(np.abs(x), x[:250], ours, power, shape, a, b)
    binary_f32(np.abs(x), x[:250], theirs, power, shape, a, b)
    np.testing.assert_array_equal(ours, theirs)


def test_fences_of_an_image(image: Image) -> None:
    code = native.Native(image)
    flags = np.zeros(16, np.int64)
    code.function(objects.symbol_of(signal, ()))(flags, 8, 3)
    assert flags.tolist() == [0] * 8 + [3] + [0] * 7
    code.function(objects.symbol_of(wait_ge, ()))(flags, 8, 3, 10)
    code.function(objects.symbol_of(pause, ()))(10)


def test_an_image_needs_nothing_but_the_c_library(image: Image) -> None:
    assert all(native.address_of(name) for name in image.imports)
    assert not any(name.startswith(("Py", "NRT_", "numba_")) for name in image.imports)
    assert native.address_of("PyErr_Clear") is None
    assert native.address_of("hetsched_sched_yield") is not None
    assert native.address_of("no_such_function_anywhere") is None


def test_an_image_is_the_same_when_it_is_linked_again(image: Image) -> None:
    assert objects.link(reversed(ENTRIES)) == image


def test_an_image_runs_in_a_process_without_numba(image: Image, tmp_path: Path) -> None:
    (tmp_path / "code").write_bytes(image.data)
    script = f"""
import sys, numpy as np
from hetsched_kernels.native import Native
from hetsched_kernels.tables import Image
code = Native(Image(open({str(tmp_path / "code")!r}, "rb").read(), {dict(image.symbols)!r}, {image.inside!r}, {dict(image.imports)!r}))
x, y = np.linspace(0, 1, 100).astype(np.float32), np.zeros(100, np.float32)
code.function({objects.symbol_of(unary_f32, ())!r})(x, y, {codes.UNARY["Neg"]}, 0, 0)
assert (y == -x).all() and "numba" not in sys.modules and "llvmlite" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_which_arguments_are_addresses_or_written() -> None:
    assert chain_f32.address_arguments == (2,)
    assert chain_f32.written_arguments == (3, 4)
    assert unary_f32.address_arguments == ()


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x02\x01\x01" + bytes(60), b"MZ" + bytes(100)])
def test_other_files_are_not_linked(data: bytes) -> None:
    with pytest.raises(elf.UnlinkableError, match="not an object file"):
        elf.link([data])


def test_a_missing_function_is_an_error(image: Image) -> None:
    with pytest.raises(OSError, match="no function nowhere"):
        native.Native(image._replace(imports={"nowhere": (0,)}))


def test_code_is_kept_apart_for_every_change_of_what_it_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"a": "from hetsched_kernels import b, c as other\n", "b": "from hetsched_kernels.d import (\n    one,\n)\n"}

    def digest(changed: str) -> str:
        """That of a process that finds the package with one module changed."""
        folder = tmp_path / f"with {changed}"
        folder.mkdir()
        for name in "abcde":
            (folder / f"{name}.py").write_text(texts.get(name, "") + ("# changed\n" if name == changed else ""))
        monkeypatch.setattr(code_cache, "_PACKAGE", folder)
        return code_cache.source_digest("a")

    before = digest("")
    assert len({before, *(digest(name) for name in "abcd")}) == 5
    assert digest("e") == before  # nobody imports it
