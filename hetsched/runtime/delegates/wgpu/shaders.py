"""WGSL source: the files in ``shaders/``, and what goes before them.

A file declares ``struct Params`` (numbers of 4 bytes, in the order in which they are passed) and ``fn main``. The rest is put before
it here: the buffers by name, an alias of each one's element type (``x`` has ``X``), ``C`` for the type in which products are
computed, ``activate`` and, for kernels that compute 4 elements at once, ``store_four``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

#: How a tensor lies in device memory -> WGSL's element type, bytes an element. Bytes lie four in a word.
ELEMENT = {"f32": "f32", "f16": "f16", "i8": "u32", "u8": "u32", "u32": "u32", "i32": "i32", "i64": "vec2<i32>"}
WIDTH = {"f32": 4, "f16": 2, "i8": 1, "u8": 1, "u32": 4, "i32": 4, "i64": 8}
#: Least and greatest of the byte types.
RANGE = {"i8": (-128, 127), "u8": (0, 255)}


@cache
def body(name: str) -> str:
    """The text of ``shaders/<name>.wgsl``."""
    return (files(__package__) / "shaders" / f"{name}.wgsl").read_text(encoding="utf-8")


def compose(
    text: str,
    bindings: Mapping[str, tuple[str, bool]],
    *,
    compute: str = "f32",
    activation: str = "",
    vectors: frozenset[str] = frozenset(),
) -> str:
    """A whole shader.

    Args:
        text: what declares ``Params`` and ``main``.
        bindings: name -> (how its tensor lies, whether it is written or may share a buffer with what is).
        compute: ``f32`` or ``f16``, in which products are computed.
        activation: the function of a fused activation.
        vectors: bindings that are read four elements at once.
    """
    lines = ["enable f16;"] if "f16" in (compute, *(kind for kind, _ in bindings.values())) else []
    lines.append("@group(0) @binding(0) var<uniform> p: Params;")
    for i, (name, (kind, written)) in enumerate(bindings.items()):
        element = f"vec4<{ELEMENT[kind]}>" if name in vectors else ELEMENT[kind]
        access = "read_write" if written else "read"
        lines.append(f"@group(0) @binding({i + 1}) var<storage, {access}> {name}: array<{element}>;")
        lines.append(f"alias {name.upper()} = {element};")
    lines.append(f"alias C = {compute};")
    if "activate(" in text:
        lines.append(body("functions"))
        lines.append(f"fn activate(x: f32, a: f32, b: f32) -> f32 {{ return fn_{activation or 'Identity'}(x, a, b); }}")
    if "store_four(" in text:
        lines.append(_store_four(bindings["y"][0]))
    return "\n".join([*lines, text])


def _store_four(kind: str) -> str:
    """``store_four(first, values)``: up to four elements of ``y``, quantized where it holds bytes; ``first`` is a multiple of 4."""
    if kind in RANGE:
        low, high = RANGE[kind]
        return f"""fn store_four(first: u32, values: vec4<f32>) {{
    let steps = clamp(round(values / p.y_scale) + p.y_zero, vec4<f32>({low}.0), vec4<f32>({high}.0));
    let bytes = bitcast<vec4<u32>>(vec4<i32>(steps)) & vec4<u32>(255u);
    y[first / 4u] = bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}}"""
    return """fn store_four(first: u32, values: vec4<f32>) {
    for (var i = 0u; i < 4u && first + i < p.total; i++) { y[first + i] = Y(values[i]); }
}"""
