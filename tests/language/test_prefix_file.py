"""Prefixes in files: mapped by later processes, of one model at one precision, with all that a sequence holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hetsched.errors import InputError, ModelError, OptionError
from hetsched.language.power import WARM, PowerLevel
from hetsched.language.prefix_file import map_prefix, save_prefix
from hetsched.language.session import LanguageModel

WriteDecoder = Callable[..., Path]
DATA = Path(__file__).parent / "data"
LLAMA = DATA / "llama"
PREFIX = np.random.default_rng(7).integers(3, 300, 40).tolist()
SMALL = np.random.default_rng(8).integers(0, 60, 40).tolist()
TAILS = [np.random.default_rng(n).integers(3, 300, 20).tolist() for n in range(3)]


def test_a_prefix_in_a_file(tmp_path: Path, write_decoder: WriteDecoder) -> None:
    path = tmp_path / "system.prefix"
    with LanguageModel(LLAMA, context=128, page=16) as model:
        table = model.sequence()
        model.compute(PREFIX, table)
        save_prefix(path, model, table)
        want = model.compute(TAILS[0][:5], table)[0].copy()
        with pytest.raises(OptionError, match="has no tokens"):
            save_prefix(path, model, model.sequence())
    with LanguageModel(LLAMA, context=128, page=16) as model:
        mapped = model.residency
        prefix, table = map_prefix(path, model), model.sequence()
        assert model.pool.used_bytes == 0 and prefix.tokens == PREFIX
        mapped.begin_with(table, [*PREFIX, *TAILS[0][:5]])
        assert table.length == len(PREFIX)
        np.testing.assert_array_equal(model.compute(TAILS[0][:5], table)[0], want)
        assert model.pool.stored.disk_bytes == 0
    with LanguageModel(write_decoder(), page=16) as other, pytest.raises(ModelError, match="has a prefix of another model"):
        map_prefix(path, other)
    with LanguageModel(LLAMA, context=32, page=16) as model:
        with pytest.raises(OptionError, match="has 40 tokens, more than the context limit of 32"):
            map_prefix(path, model)
        for damaged in (path.read_bytes()[:-1], b"nothing" * 9, path.read_bytes()[:30]):
            path.write_bytes(damaged)
            with pytest.raises((ModelError, OptionError)):
                map_prefix(path, model)
        with pytest.raises(InputError, match="cannot be read"):
            map_prefix(tmp_path / "absent", model)


@pytest.mark.parametrize("kv", [("int8", "int8"), ("int8", "int4"), ("fp8", "fp8")])
def test_the_newest_tokens_in_float16_are_in_the_file(tmp_path: Path, kv: tuple[str, str]) -> None:
    """Every sequence with the prefix computes what the one that was saved does; a float16 cache takes the pages alone."""
    path = tmp_path / "system.prefix"
    with LanguageModel(LLAMA, context=128, page=16, kv=kv) as model:
        table = model.sequence()
        model.compute(PREFIX, table)
        save_prefix(path, model, table)
        want = model.compute(TAILS[0][:5], table)[0].copy()
    with LanguageModel(LLAMA, context=128, page=16, kv=kv, pool_tokens=400) as model:
        prefix = map_prefix(path, model)
        first, second = prefix.fork(), prefix.fork()
        assert prefix.fresh == 16 and model.pool.used_bytes == model.pool.recent.memory.nbytes * 3
        for table in (first, second, prefix):
            np.testing.assert_array_equal(model.compute(TAILS[0][:5], table)[0], want)
        coarse = model.sequence()
        coarse.adopt(map_prefix(path, model), 40)
        coarse.fresh = 0
        assert not (model.compute(TAILS[0][:5], coarse)[0] == want).all()
    with LanguageModel(LLAMA, context=128, page=16) as model:
        table = map_prefix(path, model)
        assert table.fresh == 0 and np.isfinite(model.compute(TAILS[0][:5], table)).all()


def test_states_are_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "system.prefix"
    with LanguageModel(DATA / "mamba", context=128) as model:
        table = model.sequence()
        model.compute(PREFIX, table)
        save_prefix(path, model, table)
        want = model.compute(TAILS[0][:5], table)[0].copy()
    with LanguageModel(DATA / "mamba", context=128) as model:
        prefix, table = map_prefix(path, model), model.sequence()
        model.residency.begin_with(table, [*PREFIX, *TAILS[0][:5]])
        assert table.length == len(PREFIX) and table.states.any()
        np.testing.assert_array_equal(model.compute(TAILS[0][:5], table)[0], want)
        np.testing.assert_array_equal(model.compute(TAILS[0][:5], prefix)[0], want)
        path.write_bytes(path.read_bytes()[:-4])
        with pytest.raises(ModelError, match="is not as it was written, by its checksum"):
            map_prefix(path, model)


def test_it_is_of_one_precision(tmp_path: Path, write_decoder: WriteDecoder) -> None:
    """Protected weights count where activations have 8 bits; a sequence that was computed otherwise is refused."""
    path, decoder = tmp_path / "system.prefix", write_decoder("llama", "Q8_0")
    with LanguageModel(decoder, context=128) as model:
        table = model.sequence()
        model.compute(SMALL[:8], table)
        save_prefix(path, model, table)
        model.work_at(PowerLevel("warm", precision="w4a16"))
        model.compute(SMALL[8:], table)
        model.work_at(PowerLevel("normal"))
        with pytest.raises(OptionError, match="was computed at a lower power level"):
            save_prefix(path, model, table)
        with pytest.raises(OptionError, match="at a lower power level"):
            save_prefix(path, model, table.fork())
        table.cut(0)
        model.compute(SMALL[:8], table)
        save_prefix(path, model, table)
    with LanguageModel(decoder, context=128, protect=()) as model, pytest.raises(ModelError, match="of another protected"):
        map_prefix(path, model)
    with LanguageModel(decoder, context=128, precision="w4a16") as model:
        with pytest.raises(ModelError, match="of another precision"):
            map_prefix(path, model)
        table = model.sequence()
        model.compute(SMALL[:8], table)
        save_prefix(path, model, table)
    with LanguageModel(decoder, context=128, precision="w4a16", protect=("*ffn_down*",)) as model:
        assert map_prefix(path, model).length == 8


def test_tokens_out_of_sight_are_no_prefix(tmp_path: Path) -> None:
    """A window that is shorter than the sequence changes what later tokens are."""
    with LanguageModel(LLAMA, context=64, page=16) as model:
        model.work_at(WARM)
        table = model.sequence()
        model.compute(PREFIX[:20], table)
        model.work_at(PowerLevel("normal"))
        save_prefix(tmp_path / "short.prefix", model, table)
        model.work_at(PowerLevel("warm", context=0.5))
        model.compute(PREFIX, table)
        with pytest.raises(OptionError, match="at a lower power level"):
            save_prefix(tmp_path / "long.prefix", model, table)


def signed(whole: bytes) -> bytes:
    """A file that somebody changed and gave the right checksum."""
    begin = whole.index(b"\n") + 1
    return whole[:begin] + hashlib.sha256(whole[begin + 32 :]).digest() + whole[begin + 32 :]


def with_header(whole: bytes, header: bytes) -> bytes:
    """The file with another header, padded as the old one was."""
    begin = whole.index(b"\n") + 33
    start, space = begin + 8, 4096 - begin - 8
    assert len(header) <= space
    return signed(whole[:begin] + len(header).to_bytes(8, "little") + header.ljust(space, b"\0") + whole[start + space :])


def test_a_file_that_is_not_as_it_was_written_is_refused(tmp_path: Path) -> None:
    """One bit anywhere: in the tokens, in a page, in the padding, in the newest tokens, in the checksum; an end at any place."""
    path = tmp_path / "system.prefix"
    with LanguageModel(LLAMA, context=128, page=16, kv=("int8", "int4")) as model:
        table = model.sequence()
        model.compute(PREFIX, table)
        save_prefix(path, model, table)
        whole = path.read_bytes()
        for at in (0, 20, 60, 90, 700, 4095, 4200, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(ModelError, match="make it anew"):
                map_prefix(path, model)
        for end in (0, 1, 17, 18, 40, 58, 59, 4095, 4096, 5000, len(whole) - 1):
            path.write_bytes(whole[:end])
            with pytest.raises((InputError, ModelError)):
                map_prefix(path, model)
        path.write_bytes(whole)
        mapped = map_prefix(path, model)
        assert mapped.tokens == PREFIX and len(model.pool.stored) == 4  # three pages, and the newest tokens
        del mapped
        assert len(model.pool.stored) == 0


def test_headers_that_lie_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "system.prefix"
    with LanguageModel(LLAMA, context=128, page=16) as model:
        table = model.sequence()
        model.compute(PREFIX, table)
        save_prefix(path, model, table)
        whole = path.read_bytes()
        begin = whole.index(b"{")
        header = json.loads(whole[begin : whole.index(b"\0", begin)])
        changes: list[dict[str, object]] = [
            {"tokens": []}, {"tokens": "abc"}, {"tokens": [1.5]}, {"tokens": PREFIX[:-20]},
            {"fresh": -1}, {"fresh": 41}, {"fresh": None}, {"states": 7},
            {"keys": "int99"}, {"values": None}, {"keys": "int8"}, {"page": 32}, {"layers": -1}, {"model": {}}, {"minimum_runtime": "99"},
        ]  # fmt: skip
        for change in changes:
            path.write_bytes(with_header(whole, json.dumps(header | change).encode()))
            with pytest.raises((ModelError, OptionError)):
                map_prefix(path, model)
        for text in (b"[" * 3000, b"[]", b"{", b"\xff", b"null", b'{"a": 1, "a": 2}'):
            path.write_bytes(with_header(whole, text))
            with pytest.raises(ModelError, match=r"the header of system\.prefix is damaged"):
                map_prefix(path, model)
        assert model.pool.free == model.pool.capacity - 3 and len(model.pool.stored) == 0


def test_saving_at_a_lower_level_forgets_nothing(tmp_path: Path) -> None:
    """What was computed in full is saved in full, though new tokens would not see its beginning."""
    path = tmp_path / "system.prefix"
    with LanguageModel(LLAMA, context=64, page=16) as model:
        table = model.sequence()
        model.compute([*PREFIX, *TAILS[0]], table)
        model.work_at(PowerLevel("critical", context=0.25))
        save_prefix(path, model, table)
        assert table.gone == 0 and map_prefix(path, model).length == 60
        model.compute([1], table)
        assert table.gone > 0
    with LanguageModel(LLAMA, context=64, page=16) as one, LanguageModel(LLAMA, context=64, page=16) as other:
        table = other.sequence()
        other.compute(PREFIX, table)
        with pytest.raises(OptionError, match="belongs to another model"):
            save_prefix(path, one, table)
