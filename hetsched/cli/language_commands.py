"""``hetsched run --prompt`` and ``hetsched chat``: text from a model, as it comes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from unicodedata import category

import typer

from hetsched.cli import language_options, traces
from hetsched.cli.headings import LANGUAGE
from hetsched.cli.progress import progress
from hetsched.cli.shared_options import Json, Precision
from hetsched.errors import HetschedError, OptionError

if TYPE_CHECKING:
    from hetsched.app.generating import Assistant
    from hetsched.language.generation import Answer, Token

Prompt = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Let a language model answer: a GGUF file, a Hugging Face folder, a plan.", rich_help_panel=LANGUAGE),
]
Raw = Annotated[bool, typer.Option("--raw", help="Continue the prompt as it is, without the chat template.", rich_help_panel=LANGUAGE)]
_OPENING = "opening the model (its kernels are compiled once)"
Temperature = Annotated[float, typer.Option(metavar="T", help="Of the choice of tokens; 0 takes the best.", rich_help_panel=LANGUAGE)]
TopK = Annotated[int, typer.Option("--top-k", metavar="K", help="Only the K best tokens count. 0: all.", rich_help_panel=LANGUAGE)]
TopP = Annotated[
    float, typer.Option("--top-p", metavar="P", help="Only the best tokens that have probability P together.", rich_help_panel=LANGUAGE)
]
Repetition = Annotated[
    float, typer.Option(metavar="F", help="Scores of recent tokens are lowered by this factor. 1: not.", rich_help_panel=LANGUAGE)
]
Context = Annotated[int | None, typer.Option(metavar="N", help="Most tokens of a conversation. Default: 2048.", rich_help_panel=LANGUAGE)]
Kv = Annotated[
    str,
    typer.Option(
        "--kv", metavar="KEYS/VALUES", help="Precision of the cache: fp16, fp8, int8; values also int4.", rich_help_panel=LANGUAGE
    ),
]
System = Annotated[str | None, typer.Option(metavar="TEXT", help="The system message.", rich_help_panel=LANGUAGE)]
Generate = Annotated[int, typer.Option(metavar="N", help="Most tokens of an answer.", rich_help_panel=LANGUAGE)]

#: A line of a chat that begins so names the power level from there on.
_POWER = "/power"


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    app.command(short_help="Talk with a language model on this machine")(chat)


def chat(
    target: Annotated[Path, typer.Argument(metavar="PLAN_OR_MODEL", help="A GGUF file, a Hugging Face folder, or a plan for host.")],
    system: System = None,
    generate: Generate = 512,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    repetition: Repetition = 1.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the choice of tokens.", rich_help_panel=LANGUAGE)] = 0,
    context: Context = None,
    kv: Kv = "fp16",
    cache_memory: language_options.CacheMemory = None,
    shrink_cache: language_options.ShrinkCache = False,
    speculate: language_options.Speculate = None,
    draft: language_options.Draft = None,
    draft_layers: language_options.DraftLayers = None,
    save_acceptance: language_options.SaveAcceptance = None,
    power: language_options.Power = "normal",
    power_policy: language_options.PowerPolicy = None,
    adapter: language_options.Adapter = None,
    protect: language_options.Protect = [],  # noqa: B006
    update: language_options.Update = [],  # noqa: B006
    precision: Precision = "auto",
    as_json: Json = False,
) -> None:
    """Talk with a language model: a line is a turn, an empty line or the end of the input ends it; '/power LEVEL' changes the power."""
    from hetsched.app.generating import assistant
    from hetsched.cli import show
    from hetsched.language.sampling import Sampling

    options = Sampling(temperature, top_k, top_p, repetition, seed=seed)
    working = language_options.Working(
        cache_memory, shrink_cache, speculate, draft, power, adapter, protect, draft_layers, save_acceptance, power_policy, update
    )
    working.check(target)
    with progress(_OPENING, as_json):
        held = assistant(target, context=context, kv=kv, precision=precision, sampling=options, **working.arguments())
        held.model.ready()
    _say_note(held, quiet=as_json)
    with held as opened:
        talk, turns, answers = opened.conversation(system), [], []
        for said in _lines(quiet=as_json):
            try:
                if said.split()[0] == _POWER:
                    opened.work_at(said.removeprefix(_POWER).strip())
                    _say_note(opened, quiet=as_json)
                    continue
                write(talk.say(said, most=generate), quiet=as_json)
            except HetschedError as e:
                if not sys.stdin.isatty():
                    raise
                show.line(f"({e})")  # somebody who types says it again, and the conversation goes on
                continue
            turns.append(opened.summary(talk.answer))
            answers.append(talk.answer)
            if not as_json:
                show.line(figures(opened, talk.answer))
        if as_json:
            show.json({"turns": turns})
        if save_acceptance is not None and answers:
            opened.acceptance(*answers).save(save_acceptance)


def answer_one(
    target: Path, prompt: str, *, most: int, system: str | None, raw: bool, sampling: tuple[float, int, float, float, int],
    context: int | None, kv: str, precision: str, working: language_options.Working, trace: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Answer one prompt and say how fast that was."""
    traces.check_name(trace, (target,))
    working.check(target)
    if raw and system is not None:
        raise OptionError("--system belongs to the chat template, and --raw leaves that out: leave one of them out")
    from hetsched.app.generating import assistant
    from hetsched.cli import show
    from hetsched.language.generation import Answer
    from hetsched.language.sampling import Sampling

    temperature, top_k, top_p, repetition, seed = sampling
    options = Sampling(temperature, top_k, top_p, repetition, seed=seed)
    with progress(_OPENING, as_json):
        held = assistant(target, context=context, kv=kv, precision=precision, sampling=options, **working.arguments())
        held.model.ready()
    _say_note(held, quiet=as_json)
    with held as opened:
        answer, recorded = Answer(), None if trace is None else opened.record()
        if raw:
            write(opened.complete(prompt, most=most, answer=answer), quiet=as_json)
        else:
            talk = opened.conversation(system)
            write(talk.say(prompt, most=most), quiet=as_json)
            answer = talk.answer
        if recorded is not None:
            traces.write(recorded, trace)
        if as_json:
            show.json(opened.summary(answer) | {"trace_path": None if trace is None else str(trace)})
        else:
            show.line(figures(opened, answer))
        if working.save_acceptance is not None:
            opened.acceptance(answer).save(working.save_acceptance)


def write(tokens: Iterable[Token], *, quiet: bool) -> None:
    """Print text as it comes."""
    for token in tokens:
        if not quiet and token.text:
            print(harmless(token.text), end="", flush=True)
    if not quiet:
        print()


def harmless(text: str) -> str:
    r"""``text`` as it is, except that what a terminal would obey is written as escapes.

    Examples:
        >>> harmless("a\tb\n \x1b[31m")
        'a\tb\n \\x1b[31m'
    """
    obeyed = ("Cc", "Cs")
    return "".join(c if c in "\n\t" or category(c) not in obeyed else c.encode("unicode_escape").decode() for c in text)


def _say_note(opened: Assistant, *, quiet: bool) -> None:
    """What watching the machine is worth."""
    from hetsched.cli import show

    if opened.watch is not None and opened.watch.note and not quiet:
        show.line(f"note: {opened.watch.note}")


def figures(opened: Assistant, answer: Answer) -> str:
    """How fast an answer came, in one line."""
    from hetsched.cli import show
    from hetsched.sizes import size

    keys = opened.summary(answer)
    reused = f", {answer.reused_tokens} of them cached" if answer.reused_tokens else ""
    said = [
        f"{answer.prompt_tokens} tokens in{reused}", f"{len(answer.tokens)} out", f"first token after {show.seconds(answer.first_s)}",
        f"prefill {answer.prefill_rate:.3g} tok/s", f"decode {answer.decode_rate:.3g} tok/s",
        f"{len(opened.model.at_work)} threads", f"cache {size(int(keys['kv_cache_mb'] * 1e6), 3)}",
        f"peak memory {size(int(keys['peak_memory_mb'] * 1e6), 3)}",
    ]  # fmt: skip
    if answer.drafted:
        said.append(f"{answer.accepted} of {answer.drafted} guessed tokens were right")
    if opened.predicted:
        said.append(f"predicted {opened.predicted['decode_tok_s']:.3g} tok/s")
    return f"({'; '.join(said)})"


def _lines(*, quiet: bool) -> Iterable[str]:
    """What the user says, turn by turn."""
    while sys.stdin is not None:
        if not quiet and sys.stdin.isatty():
            print("> ", end="", flush=True)
        said = sys.stdin.readline().strip()
        if not said:
            return
        yield said
