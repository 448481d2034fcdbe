"""Frequencies of rotary embeddings, by the definitions of each scaling, and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.decoder_architecture import Rope
from hetsched.frontends.decoder_rope import inverse_frequencies


def test_plain_and_linear() -> None:
    plain, one = inverse_frequencies(Rope(10000.0, 8), 100)
    np.testing.assert_allclose(plain, [1.0, 0.1, 0.01, 0.001], rtol=1e-6)
    linear, _ = inverse_frequencies(Rope(10000.0, 8, scaling="linear", factor=4.0), 100)
    np.testing.assert_allclose(linear, plain / 4, rtol=1e-6)
    assert one == 1.0


def test_llama3_keeps_short_waves_and_stretches_long_ones() -> None:
    """Llama 3.2: factor 32, original context 8192; waves under 2048 stay, waves over 8192 are 32 times as long."""
    rope = Rope(500000.0, 64, scaling="llama3", factor=32.0, low=1.0, high=4.0, original=8192)
    plain = 500000.0 ** (-np.arange(0, 64, 2) / 64)
    wave, scaled = 2 * math.pi / plain, inverse_frequencies(rope, 10)[0]
    np.testing.assert_allclose(scaled[wave < 2048], plain[wave < 2048], rtol=1e-6)
    np.testing.assert_allclose(scaled[wave > 8192], plain[wave > 8192] / 32, rtol=1e-6)
    between = (wave > 2048) & (wave < 8192)
    smooth = (8192 / wave[between] - 1) / 3
    np.testing.assert_allclose(scaled[between], (1 - smooth) * plain[between] / 32 + smooth * plain[between], rtol=1e-6)
    assert between.any()


def test_yarn_ramps_between_its_two_rotations() -> None:
    rope = Rope(10000.0, 64, scaling="yarn", factor=4.0, low=1.0, high=32.0, original=4096)
    plain = 10000.0 ** (-np.arange(0, 64, 2) / 64)
    scaled, magnitude = inverse_frequencies(rope, 10)
    turns = 4096 * plain / (2 * math.pi)
    np.testing.assert_allclose(scaled[turns > 40], plain[turns > 40], rtol=1e-6)
    np.testing.assert_allclose(scaled[turns < 0.7], plain[turns < 0.7] / 4, rtol=1e-6)
    assert magnitude == pytest.approx(0.1 * math.log(4) + 1)


def test_longrope_has_two_sets_of_factors() -> None:
    rope = Rope(10000.0, 4, scaling="longrope", factor=32.0, original=4096, short_factors=(1.0, 2.0), long_factors=(4.0, 8.0))
    short, magnitude = inverse_frequencies(rope, 4096)
    long, _ = inverse_frequencies(rope, 4097)
    np.testing.assert_allclose(short, [1.0, 0.005], rtol=1e-6)
    np.testing.assert_allclose(long, [0.25, 0.00125], rtol=1e-6)
    assert magnitude == pytest.approx(math.sqrt(1 + math.log(32) / math.log(4096)))


def test_unknown_scalings_and_senseless_bases() -> None:
    with pytest.raises(UnsupportedModelError, match="'odd'"):
        inverse_frequencies(Rope(10000.0, 4, scaling="odd"), 1)
    for rope in (
        Rope(1.0, 4),
        Rope(1e-300, 4),
        Rope(1.0, 4, scaling="yarn", factor=2.0),
        Rope(1e4, 4, scaling="longrope", short_factors=(0, 1)),
    ):
        with pytest.raises(ModelError, match="make no sense"):
            inverse_frequencies(rope, 0)
