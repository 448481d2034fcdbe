#!/usr/bin/env python3
"""Fuzzing of the model readers: ``python tests/fuzz/fuzz.py [SECONDS] [FORMAT ...]`` (default 60 seconds, all formats).

Each case is a damaged file (``mutate.py``) made from a small good one (``seeds.py``) or from the corpus, read in a guarded process
(``guard.py``). It must load or be refused with an error of hetsched's own: no crash, no hang over 10 s, no allocation over 1 GB, no
file opened outside the model's folder. What breaks this is made smaller, saved in ``corpus/`` as ``FORMAT-KIND-HASH.NAME``, and printed;
the exit code is then 1. The seed of the random numbers is printed and may be given as FUZZ_SEED.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

from cases import Case, read_case
from grow import json_grown, message_grown, wire_mutated
from hostile import HOSTILE
from minimise import smaller
from mutate import bytes_mutated, header_mutated, json_mutated, message_mutated, zip_mutated
from seeds import SEEDS
from workers import Verdict, Worker

CORPUS = Path(__file__).with_name("corpus")
#: Cases of one format in a row, before the next format has its turn.
_TURN = 25
_LARGEST = 1 << 20
#: Hostile files up to this size are damaged further.
_LARGEST_SEED = 1 << 16
#: How often a name or a part is multiplied, of the changes to a format with names.
_GROWN = 0.25


def mutated(rng: random.Random, kind: str, case: Case, other: Case) -> Case:
    """One damaged variant of ``case``; ``other`` lends bytes."""
    names = [n for n, b in case.files.items() if not b.startswith(b"-> ")]
    if not names:
        return case
    name = rng.choice(names)
    content = case.files[name]
    if rng.random() < 0.35:
        return case.with_bytes(bytes_mutated(rng, content, other.files[other.entry]), name)
    if kind == "onnx" and name.endswith(".onnx"):
        return case.with_bytes(_onnx_mutated(rng, content), name)
    if kind == "mlmodel":
        return case.with_bytes(_mlmodel_mutated(rng, content), name)
    change_json = json_grown if rng.random() < _GROWN else json_mutated
    if name.endswith(".json"):
        return case.with_bytes(change_json(rng, content), name)
    if name.endswith(".safetensors"):
        return case.with_bytes(header_mutated(rng, content, change_json), name)
    return case.with_bytes(zip_mutated(rng, content, change_json) if kind == "pt2" else bytes_mutated(rng, content), name)


def _onnx_mutated(rng: random.Random, content: bytes) -> bytes:
    import onnx
    from google.protobuf.message import DecodeError, EncodeError

    try:
        model = onnx.ModelProto.FromString(content)
        (message_grown if rng.random() < _GROWN else message_mutated)(rng, model)
        return bytes(model.SerializeToString())
    except (DecodeError, EncodeError, ValueError, RecursionError):
        return bytes_mutated(rng, content)


def _mlmodel_mutated(rng: random.Random, content: bytes) -> bytes:
    """Without Core ML's own message classes: fields of the wire format, their lengths and varints, once or a few times."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        content = wire_mutated(rng, content)
    return content


class Campaign:
    """Findings so far, one of each signature."""

    def __init__(self, rng: random.Random, worker: Worker) -> None:
        self.rng, self.worker = rng, worker
        self.findings: dict[str, Path] = {}
        self.seen: Counter[tuple[str, str]] = Counter()

    def turn(self, kind: str, pool: list[Case], end: float) -> None:
        """A few cases of one format."""
        for _ in range(_TURN):
            if time.monotonic() > end:
                return
            case = mutated(self.rng, kind, self.rng.choice(pool), self.rng.choice(pool))
            if case.size > _LARGEST:
                continue
            verdict = self.worker.run(case)
            self.seen[kind, verdict.what] += 1
            if verdict.is_finding:
                self.found(kind, case, verdict)
            elif verdict.what == "ok" and len(pool) < 400 and self.rng.random() < 0.1:
                pool.append(case)

    def found(self, kind: str, case: Case, verdict: Verdict) -> None:
        """Keep the first of each signature, made smaller."""
        if verdict.signature in self.findings:
            return
        self.findings[verdict.signature] = Path()
        case = smaller(case, lambda c: self.worker.run(c).signature == verdict.signature)
        digest = hashlib.sha256(b"".join(case.files.values())).hexdigest()[:8]
        path = case.save(CORPUS, f"{kind}-{re.sub('[^a-z]', '', verdict.what)}-{digest}")
        self.findings[verdict.signature] = path
        print(f"FOUND {verdict.what} ({kind}, {case.size} bytes, {path.name}): {verdict.detail}", flush=True)


def main(arguments: list[str]) -> int:
    """Fuzz for a while; 0 if nothing was found."""
    seconds = float(arguments[0]) if arguments else 60.0
    kinds = arguments[1:] or list(SEEDS)
    seed = int(os.environ.get("FUZZ_SEED", random.SystemRandom().randrange(1 << 32)))
    rng = random.Random(seed)
    pools = {kind: _pool(kind) for kind in kinds}
    print(f"seed {seed}, {seconds:.0f} s, seeds: {', '.join(f'{k} {len(p)}' for k, p in pools.items())}", flush=True)
    end = time.monotonic() + seconds
    with Worker() as worker:
        campaign = Campaign(rng, worker)
        while time.monotonic() < end:
            for kind, pool in pools.items():
                if pool:
                    campaign.turn(kind, pool, end)
    for kind in kinds:
        print(f"{kind:<8} " + ", ".join(f"{what} {n}" for (k, what), n in sorted(campaign.seen.items()) if k == kind))
    print(f"{sum(campaign.seen.values())} cases, {len(campaign.findings)} findings")
    return 1 if campaign.findings else 0


def _pool(kind: str) -> list[Case]:
    """Good files, hostile ones, and what was found before."""
    kept = [read_case(p) for p in sorted(CORPUS.glob(f"{kind}-*"))]
    hostile = (make() for name, (make, _) in HOSTILE.items() if name.startswith(f"{kind}:"))
    return [*SEEDS[kind](), *(case for case in hostile if case.size <= _LARGEST_SEED), *kept]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
