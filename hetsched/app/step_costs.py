"""What steps of language models take on this machine: measured when a model is first planned here, kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.plan_language import Language
from hetsched.step_times import StepTimes

if TYPE_CHECKING:
    from hetsched.socs import SoC

_FORMATS = ("gguf", "huggingface")
#: Raise it when a measurement means something else than before.
_VERSION = 1
_PREFIX = "steps-"
#: A measurement is poor when its typical run was so much slower than the fastest: somebody else used the machine.
POOR_SPREAD = 0.3
_BUSY = (
    "this machine was busy when steps of text generation were measured (runs were {:.0f} % apart), so they may be priced too slow: run"
    " 'hetsched calibrate' when it is quiet, and plan again"
)


def with_step_times(
    model: Path, chip: SoC, asked: Language, precision: str, progress: Callable[[str], None]
) -> tuple[Language, tuple[str, ...]]:  # fmt: skip
    """What is asked for with the times of this machine's steps, and notes; as it is where no session of this machine computes the model.

    Args:
        model: the model file.
        chip: what is planned for.
        asked: a prompt and its answer.
        precision: as the user named it.
        progress: called with a short line on what is being done.
    """
    from hetsched.frontends import format_of
    from hetsched.language.precision import MEANT, PRECISIONS

    chosen = MEANT.get(precision, precision)
    if not chip.is_host or chosen not in PRECISIONS or format_of(model) not in _FORMATS:
        return asked, ()
    try:
        kept = _file(model, chip, chosen, asked.kv)
        steps = _read(kept) or _measured(kept, model, chip, chosen, asked.kv, progress)
    except (ModelError, UnsupportedModelError, OptionError) as e:
        return asked, (f"steps are priced operator by operator, not as text is generated on this machine: {e}",)
    return asked.model_copy(update={"steps": steps}), (_BUSY.format(100 * steps.spread),) if steps.spread > POOR_SPREAD else ()


def keep_step_times(model: Path, chip: SoC, kv: str, steps: StepTimes) -> None:
    """Let later plans for this machine be priced by these times (where the user's cache folder can be written)."""
    _write(_file(model, chip, steps.precision, kv), steps)


def forget_step_times() -> None:
    """Let the next plans measure anew."""
    from hetsched_cost_models.host.measurement import cache_folder

    for kept in cache_folder().glob(f"{_PREFIX}*.json"):
        with suppress(OSError):
            kept.unlink()


def teams_of(chip: SoC) -> tuple[tuple[int, ...], ...]:
    """Cores of one queue of each size, the smallest first."""
    from hetsched.cores import cores_of

    by_size = {len(cores): cores for cores in map(cores_of, reversed(chip.queues.values())) if cores}
    return tuple(by_size[n] for n in sorted(by_size))


def _measured(kept: Path, model: Path, chip: SoC, precision: str, kv: str, progress: Callable[[str], None]) -> StepTimes:
    from hetsched.language.step_timing import measure_steps
    from hetsched.passes.kv_precision import KvPrecision

    caches = KvPrecision.parse(kv or "fp16")
    found = measure_steps(model, teams_of(chip), precision, (caches.key, caches.value), progress)
    _write(kept, found)
    return found


def _write(kept: Path, steps: StepTimes) -> None:
    from hetsched.files import write_atomically

    with suppress(OSError, OptionError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, steps.model_dump_json().encode())


def _read(kept: Path) -> StepTimes | None:
    """What an earlier process measured; None: nothing, or the file is damaged."""
    try:
        return StepTimes.model_validate_json(kept.read_bytes())
    except (OSError, ValueError):
        return None


def _file(model: Path, chip: SoC, precision: str, kv: str) -> Path:
    """Where the times of this machine are kept for models whose layers have the operators and sizes that ``model`` has."""
    from hetsched.frontends import load
    from hetsched_cost_models.host import detect
    from hetsched_cost_models.host.measurement import cache_folder
    from hetsched_cost_models.session_steps import operators_of

    graph = load(model, {"tokens": 1, "past": 1, "logits": 1})
    shapes = sorted({(o.kind, o.size, o.window) for o in operators_of(graph, ())})
    what = [_VERSION, detect().fingerprint, _sources(), shapes, precision, kv or "fp16", teams_of(chip)]
    return cache_folder() / f"{_PREFIX}{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]}.json"


@cache
def _sources() -> str:
    """Hash of what computes steps: times measured with other code say nothing about this."""
    import hetsched.language as package

    digest = hashlib.sha256()
    for path in sorted(Path(package.__path__[0]).glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
