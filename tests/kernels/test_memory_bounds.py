"""No kernel reads or writes beside the arrays that it is given: each lies against a page that nobody may touch.

The arrays are copies aligned to their elements and nothing more, so this also finds kernels that trust in more alignment.
"""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by mprotect")

_SCRIPT = textwrap.dedent("""
    import ctypes, faulthandler, mmap, sys
    import numpy as np
    from hetsched_kernels.comparison import table
    from hetsched_kernels.compilation import Kernel
    from hetsched_kernels.nhwc import SLACK

    faulthandler.enable()
    mprotect = ctypes.CDLL(None).mprotect
    mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    PAGE, AT_THE_END = mmap.PAGESIZE, sys.argv[1] == "end"
    #: Channels-last tensors may be read SLACK bytes beyond their end.
    IMAGES, CHANNELS_LAST = {"x", "skip", "out", "a", "b"}, ("nhwc", "winograd")
    plain, held = Kernel.__call__, []

    def beside(a, slack):
        "A copy of an array that ends, with its slack, or begins at a forbidden page."
        size = a.nbytes + slack
        pages = -(-size // PAGE) or 1
        whole = np.frombuffer(mmap.mmap(-1, (pages + 2) * PAGE), np.uint8)
        start = (pages + 1) * PAGE - size if AT_THE_END else PAGE
        view = whole[start : start + a.nbytes]
        view[:] = a.view(np.uint8)
        whole[start + a.nbytes : start + size] = 0xA5
        for edge in (0, pages + 1):
            assert mprotect(whole.ctypes.data + edge * PAGE, PAGE, 0) == 0
        held.append(whole)
        return view.view(a.dtype)

    def guarded(kernel, *args):
        if kernel.address_arguments:
            return plain(kernel, *args)
        last = any(word in kernel.python.__module__ for word in CHANNELS_LAST)
        copies, given, written = {}, [], []
        for i, a in enumerate(args):
            if isinstance(a, np.ndarray) and a.size:
                key = (a.ctypes.data, a.nbytes)  # the same array twice, in place, stays the same
                slack = SLACK if last and kernel._names[i] in IMAGES else 0
                copy = copies.setdefault(key, None)
                if copy is None:
                    copy = copies[key] = beside(a, slack)
                if i in kernel.written_arguments:
                    written.append((a, copy))
                a = copy
            given.append(a)
        result = plain(kernel, *given)
        for a, copy in written:
            a[...] = copy
        held.clear()
        return result

    class Seeded:
        def __init__(self, seed): self.rng = np.random.default_rng(seed)
        def integer(self, low, high): return int(self.rng.integers(low, high + 1))
        def choice(self, options): return options[int(self.rng.integers(len(options)))]

    Kernel.__call__ = guarded
    for comparison in table():
        print(comparison.name, flush=True)
        for seed in range(2):
            got, expected = comparison.case(Seeded(seed))
            np.testing.assert_allclose(got, expected, rtol=comparison.relative, atol=comparison.absolute)
    print("all")
""")


@pytest.mark.parametrize("side", ["end", "beginning"])
def test_kernels_keep_to_their_arrays(side: str) -> None:
    process = subprocess.run([sys.executable, "-c", _SCRIPT, side], capture_output=True, text=True, check=False)
    last = (process.stdout.split("\n") or [""])[-2:]
    assert process.returncode == 0, f"{last}: {process.stderr[-2000:]}"
    assert last[0] == "all"
