"""A page with lines of text, drawn with a 5 x 7 font: something real for a text detector to find."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: Rows of five bits, top to bottom.
FONT = {
    "A": (14, 17, 17, 31, 17, 17, 17), "C": (14, 17, 16, 16, 16, 17, 14), "D": (30, 17, 17, 17, 17, 17, 30),
    "E": (31, 16, 16, 30, 16, 16, 31), "G": (14, 17, 16, 23, 17, 17, 15), "H": (17, 17, 17, 31, 17, 17, 17),
    "I": (14, 4, 4, 4, 4, 4, 14), "L": (16, 16, 16, 16, 16, 16, 31), "N": (17, 25, 21, 19, 17, 17, 17),
    "O": (14, 17, 17, 17, 17, 17, 14), "P": (30, 17, 17, 30, 16, 16, 16), "R": (30, 17, 17, 30, 20, 18, 17),
    "S": (15, 16, 16, 14, 1, 1, 30), "T": (31, 4, 4, 4, 4, 4, 4), "U": (17, 17, 17, 17, 17, 17, 14), " ": (0,) * 7,
}  # fmt: skip
LINES = ("HETSCHED", "PLACES EACH OPERATOR", "ON ITS PROCESSOR", "CPU GPU NPU")


def glyphs(text: str, scale: int) -> npt.NDArray[np.float32]:
    """``text`` as ink (1) on paper (0), ``[7 * scale, 6 * scale * len(text)]``."""
    rows = np.array([[int(b) for c in text for b in f"{FONT[c][r]:05b}0"] for r in range(7)], np.float32)
    return np.kron(rows, np.ones((scale, scale), np.float32))


def page(height: int, width: int) -> npt.NDArray[np.float32]:
    """A light page with dark text, normalised as the detector wants it: ``[1, 3, height, width]`` in about -2..2."""
    paper = np.full((height, width), 0.95, np.float32)
    paper += np.random.default_rng(0).normal(0, 0.01, paper.shape).astype(np.float32)
    scale = max(1, width // (6 * (max(map(len, LINES)) + 2)))
    for i, text in enumerate(LINES):
        ink = glyphs(text, scale)
        top, left = (i + 1) * height // (len(LINES) + 1) - ink.shape[0] // 2, 6 * scale
        paper[top : top + ink.shape[0], left : left + ink.shape[1]] -= 0.85 * ink
    mean, std = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
    return np.ascontiguousarray(((paper[None] - mean[:, None, None]) / std[:, None, None])[None], np.float32)


def ink_found(probability: npt.NDArray[np.float32]) -> float:
    """Share of the page that the detector calls text, given its output ``[1, 1, height, width]``."""
    return float((probability > 0.3).mean())
