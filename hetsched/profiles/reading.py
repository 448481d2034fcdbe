"""Finding the format of a profile from its content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hetsched.errors import TraceError
from hetsched.profiles import aihub, latency_table, measurements, ort, qnn, tflite
from hetsched.profiles.timings import Profile, Timing, checked, placed

FORMATS = (
    "an ONNX Runtime profile (JSON), TFLite benchmark_model output (text or CSV), a QNN profile (CSV), an AI Hub profile (JSON), a latency "
    "table (CSV with the columns op and time_ms), a trace (.pftrace or .parquet) or measurements.json"
)


#: Names that say that a file is text.
_TEXTS = (".csv", ".txt", ".json", ".log", ".tsv")


def read(path: Path, queue: str | None = None) -> Profile:
    """The operators' times in a file of any known format; ``queue`` says where all were taken, instead of the file.

    Raises:
        TraceError: absent, too large, damaged, of an unknown format, or without single operators.
    """
    where = f"the profile {path.name!r}"
    return placed(checked(_parsed(path, where), where), queue)


def _parsed(path: Path, where: str) -> Profile:
    from hetsched.trace.files import read_whole

    data = read_whole(path)
    text = _text(data)
    if text is None and path.suffix.lower() in _TEXTS:
        raise TraceError(f"{where} is not UTF-8 text: save it as such")
    if data[:4] == b"PAR1" or text is None:
        return _from_trace(path)
    if text.lstrip()[:1] in ("[", "{"):
        return _from_json(text, where)
    for module in (qnn, tflite, latency_table):
        if module.recognises(text):
            found: Profile = module.read(text, where)
            return found
    raise TraceError(f"{where} is of no known format: hetsched reads {FORMATS}")


def _text(data: bytes) -> str | None:
    if b"\x00" in data[:65536]:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _from_json(text: str, where: str) -> Profile:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as e:
        said = f"line {e.lineno}: {e.msg}" if isinstance(e, json.JSONDecodeError) else type(e).__name__
        raise TraceError(f"{where} looks like JSON but is not ({said}): it was not written to its end, or is damaged") from e
    if measurements.recognises(document):
        return measurements.from_json(text, where)
    if aihub.recognises(document):
        return aihub.read(document, where)
    if ort.recognises(document):
        return ort.read(document)
    if isinstance(document, dict) and "entries" in document and "header" in document:
        raise TraceError(f"{where} is a plan file, not a profile: give a profile taken while its model ran")
    raise TraceError(f"{where} is JSON of no known format: hetsched reads {FORMATS}")


def _from_trace(path: Path) -> Profile:
    from hetsched.trace import files

    try:
        trace = files.read(path)
    except TraceError as e:
        raise TraceError(f"{e}; hetsched reads {FORMATS}") from e
    timings = [Timing(s.name, "", s.end_s - s.start_s, s.queue, run=s.iteration, start_s=s.start_s) for s in trace.spans if s.kind == "op"]
    return Profile(f"{trace.origin} trace", tuple(timings), tuple(trace.notes), trace.model, trace.soc)
