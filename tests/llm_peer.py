"""llama.cpp in a process of its own, for benchmarks: its code and ours both keep state in the processor's tile registers.

    python tests/llm_peer.py MODEL THREADS CONTEXT PLAIN      requests come in on standard input and answers go out, a line of JSON each

A request is ``[before, tokens, calls]``: be at ``before`` tokens, then compute so many calls of so many new tokens; the answer is their
wall and processor time. What is cached beyond ``before`` is forgotten, what lacks is computed first, untimed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, Self

#: The token that all prompts are made of.
TOKEN = 504
#: Tokens of a prompt that llama.cpp takes at once.
_BATCH = 512


class Peer:
    """llama.cpp at work on a model. Use it as a context manager.

    Attributes:
        plain: its repacked buffers ended the process, and it computes without them.
    """

    def __init__(self, model: str, threads: int, context: int) -> None:
        self._command = [sys.executable, __file__, model, str(threads), str(context)]
        self.plain = False
        self._process = self._started()
        try:
            self.seconds(4, 64, 1)
            self.seconds(4, 1, 1)
        except EOFError:
            self.close()
            self.plain = True
            self._process = self._started()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def seconds(self, before: int, tokens: int, calls: int) -> tuple[float, float]:
        """Wall and processor time of ``calls`` calls of ``tokens`` new tokens each, after ``before`` tokens.

        Raises:
            EOFError: the process has ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([before, tokens, calls]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as e:
            raise EOFError("llama.cpp has ended") from e
        said = self._process.stdout.readline()
        if not said:
            raise EOFError("llama.cpp has ended")
        wall, own = json.loads(said)
        return float(wall), float(own)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _started(self) -> subprocess.Popen[str]:
        command = [*self._command, str(int(self.plain))]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def installed() -> bool:
    """Whether llama-cpp-python is there."""
    return importlib.util.find_spec("llama_cpp") is not None


def _opened(model: str, threads: int, context: int, plain: bool) -> Any:
    import llama_cpp

    module: Any = llama_cpp.llama_cpp
    defaults = module.llama_model_default_params

    def without_repacking() -> Any:
        params = defaults()
        params.use_extra_bufts = False
        return params

    module.llama_model_default_params = without_repacking if plain else defaults
    return llama_cpp.Llama(model, n_ctx=context, n_threads=threads, n_threads_batch=threads, n_batch=_BATCH, verbose=False)


def _serve(llama: Any, answers: int) -> None:
    """Answer requests until there are no more."""
    for line in sys.stdin:
        before, tokens, calls = json.loads(line)
        llama.n_tokens = min(llama.n_tokens, before)  # what is cached beyond is removed as the next tokens come
        if llama.n_tokens < before:
            llama.eval([TOKEN] * (before - llama.n_tokens))
        wall, own = time.perf_counter(), time.process_time()
        for _ in range(calls):
            llama.eval([TOKEN] * tokens)
        took = time.perf_counter() - wall, time.process_time() - own
        os.write(answers, (json.dumps(took) + "\n").encode())


def main() -> None:
    """Open the model, then answer; what the library prints goes nowhere."""
    model, threads, context, plain = sys.argv[1], *map(int, sys.argv[2:5])
    answers = os.dup(1)
    os.dup2(2, 1)
    _serve(_opened(model, threads, context, bool(plain)), answers)


if __name__ == "__main__":
    main()
