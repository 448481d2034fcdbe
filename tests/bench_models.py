#!/usr/bin/env python3
"""Loading and passes over the corpus of models: ``python tests/bench_models.py [CORPUS]``.

Prints what | goal | measured | ok, what lies outside a goal and why, and one summary line; the exit code is 1 if a goal is missed, 2
without a corpus. It takes a few minutes on two cores.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from model_checks import speed, twins
from model_checks.corpus import CORPUS, Listed, Refusal, files, listed, load_any, name_of
from model_checks.counting import macs, parameters, stored_elements
from model_checks.equivalence import Comparison, compare, with_weights

#: Largest relative difference of MACs and parameters, and share of refused files.
_COUNTS, _REFUSED = 0.005, 0.05
#: Seconds for one model's comparison before and after fusion.
_LIMIT_S = 60.0
_SOC = "snapdragon-8-gen-3"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; ``notes`` are printed below it."""

    what: str
    goal: str
    measured: str
    ok: bool
    notes: tuple[str, ...] = ()

    def print(self) -> None:
        """As printed."""
        print(f"{self.what:<58} {self.goal:>12}  {self.measured:<44} {'yes' if self.ok else 'NO'}", flush=True)
        for note in self.notes:
            print(f"    {note}")


def loading(root: Path) -> Iterator[Row]:
    """Every file is a fully shaped graph or is refused with a reason."""
    found = files(root)
    refused = {name_of(p, root): g.reason for p in found if isinstance(g := load_any(p), Refusal)}
    notes = tuple(f"refused: {name}: {reason}" for name, reason in refused.items())
    yield Row(f"files that load, of {len(found)}", "95 %", f"{len(found) - len(refused)}", len(refused) <= _REFUSED * len(found), notes)


def counts(root: Path) -> Iterator[Row]:
    """MACs and parameters against the corpus' own lists."""
    known = {p: said for p in files(root) if (said := listed(root).get(name_of(p, root))) and (said.macs or said.params)}
    graphs = {p: g for p in known if not isinstance(g := load_any(p), Refusal)}
    pairs = [(p, macs(g), known[p].macs) for p, g in graphs.items() if known[p].macs]
    off = [f"{name_of(p, root)}: {got:.0f} where {said} are listed" for p, got, said in pairs if said and abs(got / said - 1) > _COUNTS]
    yield Row("MACs within 0.5 % of the lists", "all", f"{len(pairs) - len(off)} of {len(pairs)}", not off, tuple(off))
    notes, wrong, total = [], 0, 0
    for path, graph in graphs.items():
        said, got = known[path].params, parameters(graph)
        total += said is not None
        if said is None or abs(got - said) <= _COUNTS * said:
            continue
        reason = _why(path, known[path], got)
        wrong += not reason
        notes.append(
            f"{name_of(path, root)}: {got} ({got / said - 1 if said else 0:+.2%}) where {said} are listed: {reason or 'UNEXPLAINED'}"
        )
    measured = f"{total - len(notes)} of the lists, {len(notes) - wrong} of the file"
    yield Row("parameters within 0.5 % of the lists, or of the file", "all", measured, not wrong, tuple(notes))


def _why(path: Path, said: Listed, got: int) -> str:
    """Why the list has another number of parameters, from the file itself; empty if the file does not say."""
    stored = stored_elements(path)
    if stored and abs(got - stored) <= _COUNTS * stored:
        counted = {"graphs": "those of the module before its export", "real": "all initializers"}.get(said.use, "others")
        return f"the list counts {counted}, the file stores {stored}"
    return f"the list counts initializers; the file stores {stored} elements and computes the other weights" if stored < 0.01 * got else ""


def twin_rows(root: Path) -> Iterator[Row]:
    """The same network from two files."""
    for twin in twins.TWINS:
        if not (root / twin.first).exists() or not (root / twin.second).exists():
            continue
        d = twins.differ(twin, root)
        types = ", ".join(f"{kind} {a}/{b}" for kind, (a, b) in d.types.items())
        ok = not twin.same or d.is_small
        goal = "same, 1 %" if twin.same else "reported"
        notes = tuple(n for n in (f"counts that differ: {types}" if types else "", f"known: {twin.why}" if twin.why and types else "") if n)
        yield Row(twin.what, goal, f"{d.first_ops} and {d.second_ops} operators, MACs {d.macs:+.2%}", ok, notes)


def _compared(path: Path) -> Comparison | None:
    graph = load_any(path)
    return None if isinstance(graph, Refusal) else compare(with_weights(graph), limit_s=_LIMIT_S)


#: Graphs without weights whose fusions the trained models do not have; they get seeded weights.
_SEEDED = (
    "graphs/timm_deit_tiny_patch16_224.onnx", "graphs/hard/timm_deit_tiny_patch16_224_torchscript.onnx",
    "graphs/minilm_l6_h384_s128.onnx", "graphs/whisper_tiny_decoder_t32.onnx", "graphs/mobilenet_v3_small.onnx", "hf/all-minilm-l6-v2",
)  # fmt: skip


def equivalence(root: Path) -> Iterator[Row]:
    """Models compute after the passes what they computed before, and every composite what its type and attributes say."""
    trained = [p for p in files(root) if p.parent.name == "real"]
    yield _equivalent("trained models that compute the same after the passes", trained, root)
    seeded = [root / name for name in _SEEDED if (root / name).exists()]
    yield _equivalent("seeded models that compute the same after the passes", seeded, root)


def _equivalent(what: str, paths: list[Path], root: Path) -> Row:
    with ProcessPoolExecutor(2) as pool:
        results = {p: c for p, c in zip(paths, pool.map(_compared, paths), strict=True) if c is not None}
    wrong = [p for p, c in results.items() if c.worst]
    notes = [f"DIFFERS {name_of(p, root)}: {results[p].worst}" for p in wrong]
    notes += [f"{name_of(p, root)}: left out {c.left}" for p, c in results.items() if c.left]
    opaque = sorted({kind for c in results.values() for kind in c.opaque})
    fused, by_type = (sum(getattr(c, field) for c in results.values()) for field in ("fused", "declared"))
    notes.append(f"{fused} fused operators by their bodies, {by_type} of them also by what their type and attributes declare")
    unchecked = Counter[str]()
    for c in results.values():
        unchecked.update(c.unchecked)
    if unchecked:
        which = ", ".join(f"{n} {kind}" for kind, n in sorted(unchecked.items()))
        notes.append(f"{unchecked.total()} fused operators not compared, as the reference does not compute their bodies: {which}")
    if opaque:
        notes.append(f"noise stands in for what the reference does not compute: {', '.join(opaque)}")
    return Row(what, "all", f"{len(results) - len(wrong)} of {len(results)}", not wrong, tuple(notes))


def speeds(root: Path) -> Iterator[Row]:
    """Sizes and seconds, each in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "llama-2-7b.Q4_0.gguf"
        speed.llama_7b(path)
        big = speed.measured(path, {"tokens": 1}, plan=_SOC)
        yield Row("7B GGUF (sparse): load", "3 s", f"{big['load_s']:.2f} s", big["load_s"] <= 3)
        yield Row(
            "7B GGUF (sparse): load and plan, largest resident size", "300 MB", f"{big['resident_mb']:.0f} MB", big["resident_mb"] <= 300
        )
        path = Path(folder) / "many.onnx"
        count = speed.many_nodes(path, 20_000)
        many = speed.measured(path, {"side": 8})
        seconds = many["load_s"] + many["passes_s"]
        yield Row(f"ONNX of {count} nodes: load and passes", "5 s", f"{many['load_s']:.2f} + {many['passes_s']:.2f} s", seconds <= 5)
    path = root / "real" / "rapidocr_onnxruntime__ch_PP-OCRv4_det_infer.onnx"
    if path.is_file():
        ocr = speed.measured(path, {"x.2": 640, "x.3": 640}, repeats=5)
        text = f"{ocr['load_s']:.2f} s, again {ocr['warm_load_s']:.2f} s"
        yield Row("PP-OCRv4: load in a fresh process, and again (median of 5)", "0.5 s", text, ocr["load_s"] <= 0.5)


def layers(root: Path) -> Iterator[Row]:
    """Fused operators against the layers that converters report for the AI Hub graphs."""
    from model_checks.layers import against_converters, of_the_plan

    for what, goal, errors, notes in against_converters(root):
        median = statistics.median(errors)
        yield Row(
            what,
            "reported" if goal is None else f"{goal:.0%}",
            f"median {median:.0%} of {len(errors)}",
            goal is None or median <= goal,
            notes,
        )
    for what, errors, notes in of_the_plan(root, _SOC):
        yield Row(what, "reported", f"median {statistics.median(errors):.0%} of {len(errors)}", True, notes)


_PARTS: tuple[Callable[[Path], Iterator[Row]], ...] = (loading, counts, twin_rows, layers, equivalence, speeds)


def main(arguments: list[str]) -> int:
    """Print the table; 0 if every goal is met, 1 if not, 2 without a corpus."""
    root = Path(arguments[0]) if arguments else CORPUS
    if not root.is_dir() or not files(root):
        print(f"no corpus: {root} must be a folder of models; give it as an argument", file=sys.stderr)
        return 2
    print(f"{'what':<58} {'goal':>12}  {'measured':<44} ok")
    rows = []
    for part in _PARTS:
        for row in part(root):
            rows.append(row)
            row.print()
    met = sum(row.ok for row in rows)
    print(f"{met} of {len(rows)} goals met")
    return 0 if met == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
