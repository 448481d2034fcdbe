#!/usr/bin/env python3
"""Puts the profiles of a bundle's segments into one, as if one session had run them: python merge_profiles.py FOLDER PROFILE.json."""

import json
import sys
from pathlib import Path
from typing import Any

#: Start and length of an inference in microseconds, and the events of its nodes.
Run = tuple[float, float, list[dict[str, Any]]]


def runs_of(path: Path) -> list[Run]:
    """The inferences of a session of ONNX Runtime, without the first, which warms up."""
    events = [e for e in json.loads(path.read_text()) if isinstance(e, dict) and "ts" in e and "dur" in e]
    nodes = [e for e in events if e.get("cat") == "Node"]
    out = []
    for run in sorted((e for e in events if e.get("name") == "model_run"), key=lambda e: float(e["ts"])):
        begin, length = float(run["ts"]), float(run["dur"])
        out.append((begin, length, [e for e in nodes if begin <= float(e["ts"]) < begin + length]))
    return out[1:] or out


def merged(sessions: list[list[Run]]) -> list[dict[str, Any]]:
    """Events of inferences of the whole plan: the segments of each one after another."""
    now, events = 0.0, list[dict[str, Any]]()
    for run in zip(*sessions, strict=False):
        whole = sum(length for _, length, _ in run)
        events.append({"cat": "Session", "name": "model_run", "ph": "X", "pid": 0, "tid": 0, "ts": now, "dur": whole, "args": {}})
        for begin, length, nodes in run:
            events.extend(e | {"ts": now + float(e["ts"]) - begin} for e in nodes)
            now += length
    return events


def main() -> None:
    """Read, merge, write."""
    paths = sorted(Path(sys.argv[1]).glob("*.json"))
    if not paths:
        sys.exit(f"there is no profile in {sys.argv[1]}: the runner did not write any")
    Path(sys.argv[2]).write_text(json.dumps(merged([runs_of(p) for p in paths])))


if __name__ == "__main__":
    main()
