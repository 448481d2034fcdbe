"""Elementwise operators, alone and in chains: one shader a chain."""

from __future__ import annotations

import numpy as np

from hetsched.graph import DType, Op
from hetsched.runtime.delegates.wgpu.lowering import GpuLowering
from hetsched.runtime.delegates.wgpu.map_kernel import INTEGER, REAL, STORED, MapKernel, Operand, index_code
from hetsched.runtime.delegates.wgpu.names import BINARY, COMPARISONS, COPIES, LOGIC, UNARY
from hetsched.runtime.lower.elementwise import clip_bounds
from hetsched.runtime.lower.lowering import affine
from hetsched.runtime.stored import absorbs

#: Parameters that ONNX gives a function when its attributes are left out: (alpha, beta).
_DEFAULTS = {"HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01, 0.0), "Elu": (1.0, 0.0)}
_INTEGER_BINARY = {
    "Add": "({} + {})", "Sub": "({} - {})", "Mul": "({} * {})", "Div": "({} / {})", "Max": "max({}, {})", "Min": "min({}, {})",
    "Mod": "mod_floor({}, {})", "FMod": "({} % {})",
}  # fmt: skip
_INTEGER_UNARY = {"Neg": "-({})", "Abs": "abs({})", "Sign": "sign({})", "Relu": "max({}, 0)"}


def is_integer(low: GpuLowering, slot: int = 0) -> bool:
    """Whether an input holds integers that are numbers, not reals in disguise."""
    tensor = low.tensor(slot)
    return tensor.quantization is None and not tensor.dtype.is_float


class _Chain:
    """Expressions for the values of a chain: the operands' elements, then each op's result."""

    def __init__(self, low: GpuLowering, values: str) -> None:
        self.low = low
        self.values = values
        self.kernel = MapKernel(low.program, low.target(), values)
        self.lines: list[str] = []
        self.named: dict[str, str] = {}

    def read(self, slots: list[int]) -> None:
        """Read the operands; a constant number becomes a parameter."""
        low, out = self.low, self.low.output().shape
        arrays: list[int] = []
        for slot in slots:
            tensor = low.tensor(slot)
            if tensor.is_constant and tensor.elements == 1:
                if self.values == REAL:
                    self.named[tensor.name] = self.kernel.real(float(low.constant_reals(slot).reshape(())))
                else:
                    self.named[tensor.name] = self.kernel.signed(int(low.constant(slot).reshape(())))
            elif tensor.name not in (low.tensor(s).name for s in arrays):
                arrays.append(slot)
        reads = [self.kernel.operand(low.source(slot)) for slot in arrays]
        lines, indices = index_code(self.kernel, out, [(low.repeated(slot, out), 0) for slot in arrays])
        self.lines.append(lines)
        for slot, read, index in zip(arrays, reads, indices, strict=True):
            name = f"v{len(self.lines)}"
            self.lines.append(f"let {name} = {read}({index});")
            self.named[low.tensor(slot).name] = name

    def add(self, op: Op) -> None:
        """An operator of the chain."""
        self.named[op.outputs[0]] = name = f"v{len(self.lines)}"
        self.lines.append(f"let {name} = {self._expression(op)};")

    def _expression(self, op: Op) -> str:
        reads = [self.named[n] for n in op.inputs if n in self.named]
        if op.type in COPIES or (len(reads) == 1 and op.type in BINARY):
            return reads[0]
        if op.type == "Clip":
            low, high = (self.kernel.real(v) for v in clip_bounds(self.low, op))
            return f"fn_Clip({reads[0]}, {low}, {high})"
        if op.type in UNARY and self.values == INTEGER:
            return _INTEGER_UNARY[op.type].format(reads[0])
        if op.type in UNARY:
            alpha, beta = _DEFAULTS.get(op.type, (0.0, 0.0))
            kind = "GeluTanh" if op.type == "Gelu" and op.attr_str("approximate", "none") == "tanh" else op.type
            parameters = (self.kernel.real(op.attr_float(n, v)) for n, v in (("alpha", alpha), ("beta", beta)))
            return f"fn_{kind}({reads[0]}, {', '.join(parameters)})"
        kind = {"Sum": "Add", "Mod": "FMod" if op.attr_int("fmod", 0) else "Mod"}.get(op.type, op.type)
        if self.values == INTEGER:
            return _integer(kind, reads)
        text = reads[0]
        for other in reads[1:]:
            text = f"op_{kind}({text}, {other})"
        return text

    def emit(self, result: str) -> None:
        """Write the value called ``result``."""
        self.kernel.emit("\n".join([*self.lines, f"return {self.named[result]};"]))


def _integer(kind: str, reads: list[str]) -> str:
    text = reads[0]
    for other in reads[1:]:
        text = _INTEGER_BINARY[kind].format(text, other)
    return text


def elementwise(low: GpuLowering) -> None:
    """A function of one operand, arithmetic of several, Clip."""
    op = low.op
    chain = _Chain(low, INTEGER if is_integer(low) else REAL)
    data = [0] if op.type in (*UNARY, "Clip") else list(range(len(op.inputs)))
    chain.read(data)
    chain.add(op)
    chain.emit(op.outputs[0])


def fused_elementwise(low: GpuLowering) -> None:
    """A chain, by its body."""
    op = low.op
    chain = _Chain(low, REAL)

    def is_data(name: str) -> bool:
        return any(name in (o.inputs[:1] if o.type in ("Clip", *COPIES) else o.inputs) for o in op.body)

    chain.read([i for i, name in enumerate(op.inputs) if name and is_data(name)])
    for part in op.body:
        chain.add(part)
    chain.emit(op.outputs[0])


def quantization(low: GpuLowering) -> None:
    """QuantizeLinear and DequantizeLinear, with their own scale and zero point."""
    own = affine(low.shape(0), low.constant(1), low.constant(2) if low.has(2) else None, low.op.attr_int("axis", 1))
    source, target = low.source(0), low.target()
    if low.op.type == "QuantizeLinear":
        low.move(source, Operand(target.slot, own.scale, own.zero))
    else:
        low.move(Operand(source.slot, own.scale, own.zero), target)


def comparison(low: GpuLowering) -> None:
    """Equal, Less, LessOrEqual, Greater, GreaterOrEqual."""
    kind = INTEGER if is_integer(low) else REAL
    _two(low, kind, f"{{}} {COMPARISONS[low.op.type]} {{}}")


def logic(low: GpuLowering) -> None:
    """And, Or, Xor."""
    _two(low, INTEGER, f"({{}} != 0) {LOGIC[low.op.type]} ({{}} != 0)")


def _two(low: GpuLowering, values: str, condition: str) -> None:
    kernel = MapKernel(low.program, low.target(), INTEGER)
    out = low.output().shape
    reads = [kernel.operand(low.source(i), values) for i in (0, 1)]
    lines, (a, b) = index_code(kernel, out, [(low.repeated(i, out), 0) for i in (0, 1)])
    kernel.emit(f"{lines}\nreturn select(0, 1, {condition.format(f'{reads[0]}({a})', f'{reads[1]}({b})')});")


def negation(low: GpuLowering) -> None:
    """Not."""
    kernel = MapKernel(low.program, low.target(), INTEGER)
    kernel.emit(f"return select(1, 0, {kernel.operand(low.source(0))}(i) != 0);")


def selection(low: GpuLowering) -> None:
    """Where."""
    out = low.output().shape
    kinds = {low.source(i).slot.kind for i in (1, 2)} | {low.target().slot.kind}
    real = any(low.tensor(i).quantization is not None or low.tensor(i).dtype.is_float for i in (1, 2))
    values = REAL if real else STORED if len(kinds) == 1 else INTEGER
    kernel = MapKernel(low.program, low.target(), values)
    condition = kernel.operand(low.source(0), INTEGER)
    a, b = (kernel.operand(low.source(i)) for i in (1, 2))
    lines, (at, at_a, at_b) = index_code(kernel, out, [(low.repeated(i, out), 0) for i in (0, 1, 2)])
    kernel.emit(f"{lines}\nif ({condition}({at}) != 0) {{ return {a}({at_a}); }}\nreturn {b}({at_b});")


def conversion(low: GpuLowering) -> None:
    """Cast; integers are cast as the reals that they stand for where the op holds their Q or DQ, else as numbers."""
    source, target = low.source(0), low.target()
    if not absorbs(low.op, low.op.inputs[0]):
        source = Operand(source.slot)
    if not absorbs(low.op, low.op.outputs[0]):
        target = Operand(target.slot)
    real = any(k in ("f32", "f16") for k in (source.slot.kind, target.slot.kind)) or source.is_quantized or target.is_quantized
    kernel = MapKernel(low.program, target, REAL if real else INTEGER)
    value = f"{kernel.operand(source)}(i)"
    boolean = low.output().dtype is DType.BOOL
    zero, one = ("0.0", "1.0") if real else ("0", "1")
    kernel.emit(f"return select({zero}, {one}, {value} != {zero});" if boolean else f"return {value};")


def batch_normalization(low: GpuLowering) -> None:
    """BatchNormalization with constant statistics: a factor and a shift a channel."""
    scale, bias, mean, variance = (low.constant_reals(i).astype(np.float64).reshape(-1) for i in range(1, 5))
    factor = scale / np.sqrt(variance + low.op.attr_float("epsilon", 1e-5))
    shape = low.tensor(0).shape
    kernel = MapKernel(low.program, low.target(), REAL)
    channel = f"(i / {kernel.unsigned(int(np.prod(shape[2:])))}) % {kernel.unsigned(shape[1])}"
    x = kernel.operand(low.source(0))
    by = kernel.operand(Operand(low.vector(1, shape[1], lambda: factor.astype(np.float32))))
    to = kernel.operand(Operand(low.vector(2, shape[1], lambda: (bias - mean * factor).astype(np.float32))))
    kernel.emit(f"let channel = {channel};\nreturn {x}(i) * {by}(channel) + {to}(channel);")
