"""What fuzzing found stays fixed, hostile files do no harm and are refused in words, and the guard sees what it must see."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from cases import Case, read_case
from fuzz import mutated
from grow import json_grown, message_grown, wire_fields, wire_mutated
from hostile import HOSTILE
from minimise import smaller
from seeds import SEEDS
from workers import Worker

CORPUS = sorted(Path(__file__).with_name("corpus").glob("*"))


@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.name)
def test_findings_stay_fixed(worker: Any, path: Path) -> None:
    verdict = worker.run(read_case(path))
    assert not verdict.is_finding, f"{verdict.what}: {verdict.detail}"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_do_no_harm(worker: Any, name: str) -> None:
    make, says = HOSTILE[name]
    verdict = worker.run(make())
    assert not verdict.is_finding, f"{verdict.what}: {verdict.detail}"
    if says is not None:
        assert verdict.what == "refused" and re.search(says, verdict.detail), verdict.detail


@pytest.mark.parametrize("kind", [k for k in SEEDS if list(SEEDS[k]())])
def test_seeds_are_good_files(worker: Any, kind: str) -> None:
    verdicts = [worker.run(case) for case in SEEDS[kind]()]
    assert not any(v.is_finding for v in verdicts)
    assert sum(v.what == "ok" for v in verdicts) >= 0.7 * len(verdicts), [v.detail for v in verdicts if v.what != "ok"]


def test_the_corpus_is_small() -> None:
    assert len(CORPUS) <= 60 and all(p.stat().st_size <= 20 << 10 for p in CORPUS)


@pytest.mark.parametrize(
    ("does", "what"),
    [
        (b"raise RuntimeError('x')", "escaped"), (b"open('../secret.bin').close()", "outside"), (b"bytearray(3 << 29)", "memory"),
        (b"__import__('os').abort()", "crash"), (b"pass", "ok"), (b"raise HetschedError('no')", "refused"),
    ],
)  # fmt: skip
def test_the_guard_sees(worker: Any, does: bytes, what: str) -> None:
    """A file that the guard runs instead of reading it, so that every verdict is known to be possible."""
    assert worker.run(Case("x.guardtest", {"x.guardtest": does})).what == what


def test_the_guard_sees_a_hang() -> None:
    with Worker(hang_s=1.0) as impatient:
        assert impatient.run(Case("x.guardtest", {"x.guardtest": b"while True: pass"})).what == "hang"


def test_the_same_seed_gives_the_same_files() -> None:
    for kind in ("onnx", "gguf", "hf", "ranges"):
        pool = list(SEEDS[kind]())
        first, second = (
            [mutated(r, kind, r.choice(pool), r.choice(pool)) for _ in range(30)] for r in (random.Random(3), random.Random(3))
        )
        assert first == second and any(c not in pool for c in first)


def test_cases_are_kept_and_read_again(tmp_path: Path) -> None:
    for case in (Case("m.onnx", {"m.onnx": b"\x00a"}), Case("config.json", {"config.json": b"{}", "w": b"-> ../x"})):
        assert read_case(case.save(tmp_path, "onnx-hang-1")) == case


def test_findings_are_made_smaller() -> None:
    case = Case("m", {"m": bytes(range(100)) * 4 + b"needle" + bytes(300)})
    small = smaller(case, lambda c: b"needle" in c.files["m"])
    assert b"needle" in small.files["m"] and small.size < 40


def test_grown_names_are_long_wherever_they_were() -> None:
    from google.protobuf import descriptor_pb2

    grown = 0
    for seed in range(60):
        message = descriptor_pb2.DescriptorProto(name="abc", field=[{"name": "abc", "type_name": "abc"}, {"name": "x"}])
        message_grown(random.Random(seed), message)
        if len(message.name) > 3:
            grown += 1
            assert message.name == message.field[0].name == message.field[0].type_name and set(message.name) == set("abc")
    tree = json.dumps({"a": ["a", {"b": "a"}], "c": "d"}).encode()
    assert grown and any(len(json_grown(random.Random(seed), tree)) > 1000 for seed in range(20))


def test_wire_damage_keeps_the_lengths_around_it() -> None:
    """Most changes to a protobuf file leave a message that is read to the end; the content differs."""
    content = next(iter(SEEDS["mlmodel"]())).files["m.mlmodel"]
    changed = [wire_mutated(random.Random(seed), content) for seed in range(60)]
    assert wire_fields(content) and sum(bool(wire_fields(c)) for c in changed) > 40
    assert sum(c != content for c in changed) > 40
