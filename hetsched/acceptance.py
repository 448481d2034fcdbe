"""How many guessed tokens a model accepts: counted while text is generated, kept in a file, used by plans and simulations.

A table of *shares* says how often a step has ``d`` guesses of which the first ``k`` are accepted: ``shares[d][k]``, a row for each
number of guesses from none on, all of them together one. A step then gives ``k + 1`` tokens: the accepted ones and one more that the
model itself chooses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, ValidationError, field_validator

from hetsched.errors import OptionError
from hetsched.soc_quantities import Strict
from hetsched.versions import check_versions, version_header

#: Most tokens that are guessed at once.
MOST_GUESSES = 15
#: Who guesses: a lookup, the model's own first K layers, or a smaller model, by its hash.
GUESSERS = r"^(lookup|layers:[1-9][0-9]{0,4}|model:[0-9a-f]{64})$"
Shares: TypeAlias = tuple[tuple[float, ...], ...]
_LARGEST_FILE = 1 << 20
_AGAIN = "make it anew with 'hetsched run --save-acceptance'"


def independent(acceptance: float, length: int) -> Shares:
    """Shares where every step has ``length`` guesses, each accepted with the same probability if those before it are.

    Such a step gives ``(1 - a^(n + 1)) / (1 - a)`` tokens on average (Leviathan, Kalman, Matias: "Fast Inference from Transformers via
    Speculative Decoding", 2023, equation 1).

    Examples:
        >>> independent(0.5, 2)[2]
        (0.5, 0.25, 0.25)
        >>> tokens_per_step(independent(0.5, 2)) == (1 - 0.5**3) / (1 - 0.5) == 1.75
        True
    """
    row = [acceptance**k * (1.0 - acceptance) for k in range(length)]
    return (*((0.0,) * (d + 1) for d in range(length)), (*row, acceptance**length))


def tokens_per_step(shares: Shares) -> float:
    """Tokens that a step gives on average."""
    return sum(share * (k + 1) for row in shares for k, share in enumerate(row))


def accepted_share(shares: Shares) -> float:
    """Of the guesses, the share that is accepted; those after a wrong one count as wrong."""
    guesses = sum(d * sum(row) for d, row in enumerate(shares))
    return (tokens_per_step(shares) - 1.0) / guesses if guesses else 0.0


def shortened(shares: Shares, length: int) -> Shares:
    """The shares where no more than ``length`` tokens are guessed at once: what comes after those is not guessed.

    Examples:
        >>> shortened(independent(0.5, 4), 2) == independent(0.5, 2)
        True
    """
    out = [[0.0] * (d + 1) for d in range(min(length, len(shares) - 1) + 1)]
    for d, row in enumerate(shares):
        for k, share in enumerate(row):
            out[min(d, length)][min(k, length)] += share
    return tuple(map(tuple, out))


class Acceptance(Strict):
    """What a model accepted of its guesses, in a file."""

    schema_version: Literal[1] = 1
    model: str
    """Its name."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """The hash by which plans know it."""
    guesser: Annotated[str, Field(pattern=GUESSERS)]
    steps: Annotated[tuple[tuple[Annotated[int, Field(ge=0, le=1 << 40)], ...], ...], Field(min_length=2, max_length=MOST_GUESSES + 1)]
    """``steps[d][k]``: steps with d guesses of which k were accepted, a row for each length from none to the longest asked for."""

    @field_validator("steps")
    @classmethod
    def _triangular(cls, steps: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        if [len(row) for row in steps] != list(range(1, len(steps) + 1)):
            raise ValueError("it must have a row of d + 1 counts for each number of guesses d from 0 on")
        if not any(map(sum, steps)):
            raise ValueError("no step is counted: generate more tokens")
        return steps

    @property
    def length(self) -> int:
        """Most tokens that were guessed at once."""
        return len(self.steps) - 1

    @property
    def shares(self) -> Shares:
        """The counts as shares."""
        every = sum(map(sum, self.steps))
        return tuple(tuple(count / every for count in row) for row in self.steps)

    def added(self, other: Acceptance) -> Self:
        """What both counted.

        Raises:
            OptionError: they are of different models, guessers or lengths.
        """
        if (self.sha256, self.guesser, self.length) != (other.sha256, other.guesser, other.length):
            raise OptionError(
                f"what {other.model!r} accepted of {other.length} guesses by {other.guesser} cannot be added to what {self.model!r} did of "
                f"{self.length} by {self.guesser}: choose another file with --save-acceptance"
            )
        steps = tuple(tuple(a + b for a, b in zip(*rows, strict=True)) for rows in zip(self.steps, other.steps, strict=True))
        return self.model_copy(update={"steps": steps})

    def save(self, path: Path) -> None:
        """Write the file; what it has of the same model, guesser and length is added to.

        Raises:
            OptionError: there is something else.
        """
        from hetsched.files import write_atomically

        whole = self.from_file(path).added(self) if path.exists() else self
        said = {"schema_version": 1, **version_header(), **whole.model_dump(include={"model", "sha256", "guesser"})}
        head = json.dumps(said, indent=1).removesuffix("\n}")
        rows = ",\n".join(f"  {list(row)}" for row in whole.steps)
        write_atomically(path, f'{head},\n "steps": [\n{rows}\n ]\n}}\n'.encode())

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a file.

        Raises:
            OptionError: absent, no such file, or one of another version.
        """
        from hetsched import wrong_fields

        if not path.is_file() or path.stat().st_size > _LARGEST_FILE:
            raise OptionError(f"there is no file of accepted guesses at {path}: make it with 'hetsched run --save-acceptance {path}'")
        try:
            said = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as e:
            raise OptionError(f"{path} is no file of accepted guesses, as it is not JSON: {_AGAIN}") from e
        if isinstance(said, dict):
            check_versions(said, str(path), _AGAIN, OptionError)
            said = {name: value for name, value in said.items() if name not in version_header()}
        try:
            return cls.model_validate(said)
        except ValidationError as e:
            raise OptionError(f"{path} is no file of accepted guesses: {wrong_fields.fault(e, cls)}") from e
