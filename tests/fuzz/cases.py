"""What the fuzzer feeds a loader: a file, or a few files of one folder, and how they are kept in ``corpus/``."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: Suffix of a case of several files in the corpus: a JSON object of their bytes in base64.
SEVERAL = ".case.json"


@dataclass(frozen=True, slots=True)
class Case:
    """Files by name; ``entry`` is the one that is loaded. A target ``-> name`` instead of bytes is a symbolic link."""

    entry: str
    files: Mapping[str, bytes]

    def write(self, folder: Path) -> Path:
        """Lay the files into a new folder; returns the path to load."""
        folder.mkdir(parents=True)
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if content.startswith(b"-> "):
                (folder / name).symlink_to(content[3:].decode())
            else:
                (folder / name).write_bytes(content)
        return folder / self.entry

    def remove(self, folder: Path) -> None:
        """Remove what :meth:`write` made."""
        shutil.rmtree(folder)

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(map(len, self.files.values()))

    def with_bytes(self, content: bytes, name: str = "") -> Case:
        """Another content of one file (default: the entry)."""
        return Case(self.entry, {**self.files, name or self.entry: content})

    def save(self, folder: Path, stem: str) -> Path:
        """Keep the case as one file in ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        if len(self.files) == 1:
            path = folder / f"{stem}.{self.entry}"
            path.write_bytes(self.files[self.entry])
            return path
        path = folder / f"{stem}{SEVERAL}"
        content = {"entry": self.entry, "files": {n: base64.b64encode(b).decode() for n, b in self.files.items()}}
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return path


def read_case(path: Path) -> Case:
    """A case of the corpus: ``STEM.ENTRY`` holds the one file ``ENTRY``, ``STEM.case.json`` several."""
    if path.name.endswith(SEVERAL):
        content = json.loads(path.read_text(encoding="utf-8"))
        return Case(content["entry"], {n: base64.b64decode(b) for n, b in content["files"].items()})
    entry = path.name.split(".", 1)[1]
    return Case(entry, {entry: path.read_bytes()})
