"""Block layouts against values that the ``gguf`` package decoded, and real quantized weights against their float16 originals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.frontends.gguf_reader import read_header
from hetsched.graph import DType, Role, Tensor, WeightRef
from hetsched.reference.gguf_types import BY_NAME, BY_NUMBER, DECODABLE, TYPES, decode, decode_rows

#: Seeded random blocks and what ``gguf.quants.dequantize`` of the PyPI package gguf 0.19.0 makes of them.
GOLDEN = np.load(Path(__file__).with_name("gguf_blocks.npz"))
KINDS = sorted({name.split(".")[0] for name in GOLDEN.files})
CORPUS = Path(__file__).parents[3] / "shared" / "models" / "gguf"


def packed(path: Path, kind: str, shape: tuple[int, ...], offset: int = 0) -> Tensor:
    layout = BY_NAME[kind]
    length = int(np.prod(shape)) // layout.elements * layout.nbytes
    return Tensor("w", shape, layout.dtype, Role.WEIGHT, layout.quantization, WeightRef(path, offset, length))


def test_every_decoder_has_a_golden() -> None:
    assert {"F32", "F16", *KINDS} == DECODABLE


@pytest.mark.parametrize("kind", KINDS)
def test_decodes_exactly(kind: str) -> None:
    np.testing.assert_array_equal(decode(kind, GOLDEN[f"{kind}.blocks"]), GOLDEN[f"{kind}.values"].reshape(-1))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_read_on_their_own(kind: str, tmp_path: Path) -> None:
    blocks = GOLDEN[f"{kind}.blocks"]
    path = tmp_path / "blocks.bin"
    path.write_bytes(b"head" + blocks.tobytes())
    values = GOLDEN[f"{kind}.values"].reshape(len(blocks) if BY_NAME[kind].is_blocked else 4, -1)
    tensor = packed(path, kind, values.shape, 4)
    assert tensor.nbytes == blocks.size and tensor.is_packed
    np.testing.assert_array_equal(decode_rows(tensor), values)
    np.testing.assert_array_equal(decode_rows(tensor, 1, 2), values[1:2])
    assert decode_rows(tensor, 2, 1).shape == (0, values.shape[1])


@pytest.mark.parametrize(
    ("kind", "bits"),
    [("F32", 32), ("BF16", 16), ("Q4_0", 4.5), ("Q4_1", 5), ("Q5_0", 5.5), ("Q5_1", 6), ("Q8_0", 8.5), ("Q2_K", 2.625), ("Q3_K", 3.4375),
     ("Q4_K", 4.5), ("Q5_K", 5.5), ("Q6_K", 6.5625), ("IQ4_NL", 4.5), ("TQ1_0", 1.6875), ("TQ2_0", 2.0625), ("MXFP4", 4.25)],
)  # fmt: skip
def test_bits_per_weight(kind: str, bits: float) -> None:
    assert BY_NAME[kind].bits_per_weight == bits


def test_numbers_and_names_are_unique() -> None:
    assert len(BY_NUMBER) == len(BY_NAME) == len(TYPES)


def test_types_that_can_only_be_planned_say_so() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'IQ2_XXS' can be planned but not decoded"):
        decode("IQ2_XXS", np.zeros(66, np.uint8))


def test_broken_blocks_are_refused() -> None:
    with pytest.raises(ModelError, match="17 bytes are not whole blocks of Q4_0"):
        decode("Q4_0", np.zeros(17, np.uint8))


def test_scales_that_are_not_numbers_do_no_harm() -> None:
    assert np.isnan(decode("Q4_0", np.full(18, 255, np.uint8))).all()


def test_other_packed_constants_are_named() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'w' \(f8e4m3\) cannot be decoded"):
        decode_rows(Tensor("w", (4,), DType.F8E4M3, Role.WEIGHT, None, WeightRef(array=np.zeros(4, np.uint8))))


#: Signal-to-noise ratio in dB that rounding leaves (the float16 file was made from the Q4_1 one, which so loses nothing but float16).
SNR = {"q4_0": (18.0, 26.0), "q4_1": (60.0, 90.0), "q5_0": (25.0, 33.0), "q8_0": (40.0, 48.0)}


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the shared corpus is absent ({CORPUS})")
@pytest.mark.parametrize("kind", sorted(SNR))
def test_real_weights_are_near_their_originals(kind: str) -> None:
    original = read_header(CORPUS / "smollm2_135m_f16_blk0.gguf").tensors
    seen = 0
    for name, tensor in read_header(CORPUS / f"smollm2_135m_{kind}_blk0.gguf").tensors.items():
        if tensor.quantization is None or tensor.quantization.scheme != f"gguf:{kind.upper()}":
            continue
        want = original[name].numpy().astype(np.float64)
        noise = decode_rows(tensor).reshape(want.shape) - want
        ratio = 10 * np.log10((want**2).sum() / (noise**2).sum())
        assert SNR[kind][0] < ratio < SNR[kind][1], (name, ratio)
        seen += 1
    assert seen >= 6


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the shared corpus is absent ({CORPUS})")
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.gguf")), ids=lambda p: p.stem)
def test_the_corpus_loads(path: Path) -> None:
    prefill, decode_step = load(path, {"tokens": 16}), load(path)
    assert not any(n.startswith("past.") for n in prefill.inputs)
    assert {t.name for t in prefill.tensors.values() if t.data and t.data.path} == {
        t.name for t in decode_step.tensors.values() if t.data and t.data.path
    }
