"""Running a plan on this machine, and checking what it computed.

::

    with hetsched.runtime.compile(graph, plan) as executable:
        observed = executable.run(feeds, observe=True)
        report = hetsched.runtime.check(graph, plan, feeds, observed)
        result = executable.run(feeds, repeat=10)

numba is imported by :func:`compile`, ONNX Runtime by :func:`check`; nothing heavy is imported here.
"""

from hetsched.runtime.check import CheckReport, TensorCheck, check
from hetsched.runtime.executable import Executable, RunResult, compile
from hetsched.runtime.inputs import make_inputs
from hetsched.runtime.support import supported

__all__ = ["CheckReport", "Executable", "RunResult", "TensorCheck", "check", "compile", "make_inputs", "supported"]
