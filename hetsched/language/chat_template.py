"""Chat templates: the Jinja text in a model file that turns messages into a prompt, rendered in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hetsched.errors import HetschedError, ModelError, OptionError, shortened

#: Longest template in characters, and longest prompt that one may write.
MAX_TEMPLATE, MAX_PROMPT = 1 << 20, 1 << 24
_SHOWN = 200
#: For models whose file has no template.
PLAIN = "{% for m in messages %}{{ m['content'] }}{% if not loop.last %}\n{% endif %}{% endfor %}"


def render(template: str, messages: Sequence[Mapping[str, str]], *, begin: str = "", end: str = "", answer: bool = True) -> str:
    """The prompt of a conversation.

    Args:
        template: the model's template; empty: the messages one after another.
        messages: each with ``role`` (system, user, assistant) and ``content``.
        begin: text of the token that begins a text.
        end: text of the token that ends one.
        answer: let the assistant's turn begin.

    Raises:
        OptionError: jinja2 is not installed, or the template refuses the messages.
        ModelError: the template is damaged.

    Examples:
        >>> render("", [{"role": "user", "content": "Hello"}])
        'Hello'
    """
    try:
        from hetsched.language.template_sandbox import TemplateSandbox
    except ImportError as e:
        raise OptionError("chat templates need jinja2: pip install 'hetsched[language]', or give --raw") from e
    if len(template) > MAX_TEMPLATE:
        raise ModelError(f"the chat template has {len(template)} characters, and at most {MAX_TEMPLATE} are read: give --raw")
    environment = TemplateSandbox()
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _no_clock}
    environment.filters["tojson"] = _as_json
    words = {"messages": [dict(m) for m in messages], "bos_token": begin, "eos_token": end, "add_generation_prompt": answer, "tools": None}
    out: list[str] = []
    length = 0
    try:
        for part in environment.from_string(template or PLAIN).generate(**words):
            out.append(part)
            length += len(part)
            if length > MAX_PROMPT:
                raise ModelError(f"the chat template writes more than {MAX_PROMPT} characters: it is damaged, give --raw")
    except HetschedError:
        raise
    except Exception as e:  # whatever a program that somebody else wrote comes to
        why = shortened(str(e) or type(e).__name__, _SHOWN)
        raise ModelError(f"the model's chat template cannot be rendered ({why}): give --raw to leave it out") from e
    return "".join(out)


def _refuse(message: object) -> None:
    raise OptionError(f"the model's chat template refuses these messages: {message}")


def _no_clock(_: str) -> str:
    """What a template gets for the date: prompts do not depend on the clock."""
    return ""


def _as_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
