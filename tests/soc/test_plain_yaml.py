"""YAML from files that nobody vouches for."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.app.corrections import read_anchor
from hetsched.app.experts import read_profile
from hetsched.errors import HetschedError
from hetsched.partition.rules import read_rules
from hetsched.plain_yaml import load
from hetsched.soc_files import load_soc

BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{b}: &{b} [{', '.join(['*' + a] * 8)}]" for a, b in zip("abcdefg", "bcdefgh", strict=True)
)
BAD = {
    "alias": "chip: &x [1]\nlatency_ms: *x",
    "bomb": BOMB,
    "twice": "chip: a\nlatency_ms: 1\nlatency_ms: 2",
    "twice deep": "a:\n  - {b: 1, b: 2}",
    "not closed": "a: [1",
    "no date": "a: 2024-13-45",
    "object": "a: !!python/object/apply:os.system [ls]",
    "deep": "[" * 5000,
    "two documents": "a: 1\n---\nb: 2",
    "no bool": "a: !!bool maybe",
    "no int": 'a: !!int ""',
    "no float": 'a: !!float ""',
    "no timestamp": "a: !!timestamp x",
    "twice in a key": "? {a: 1, a: 2}\n: 3",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_bad_text_gets_one_sentence_wherever_yaml_is_read(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^(is not valid YAML|uses a YAML|has the key)") as e:
        load(text)
    assert "\n" not in str(e.value) and len(str(e.value)) < 300
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    for reader in (load_soc, read_anchor, read_rules, read_profile):
        with pytest.raises(HetschedError) as failed:
            reader(path)
        assert "\n" not in str(failed.value) and "x.yaml" in str(failed.value)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"", b"- \x80"], ids=["utf-16", "empty", "latin"])
def test_bytes_that_are_no_text(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(data)
    for reader in (load_soc, read_anchor):
        with pytest.raises(HetschedError) as failed:
            reader(path)
        assert "\n" not in str(failed.value)


def test_plain_data() -> None:
    assert load("a: [1, 2.5, x]\nb: {c: null}") == {"a": [1, 2.5, "x"], "b": {"c": None}}
    assert load("") is None
