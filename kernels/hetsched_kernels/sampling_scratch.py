"""What choosing a token needs beside its scores; known without a compiler."""

from __future__ import annotations


def sample_scratch(cols: int) -> int:
    """Float32 elements of scratch that :data:`hetsched_kernels.sampling.sample_f32` wants for a vocabulary of ``cols``."""
    return 3 * cols
