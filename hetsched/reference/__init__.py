"""The reference executor: every operator in plain numpy, obviously correct and slow.

It folds constants while loading, and is the oracle of the tests. Dot products accumulate in float64. A fused operator
runs its ``body``; an operator that reads or writes integer tensors carries its DequantizeLinear and QuantizeLinear in
``body`` and so computes exactly what the file says (round half to even, saturate).
"""

from hetsched.reference.executor import run, run_op, supported_types

__all__ = ["run", "run_op", "supported_types"]
