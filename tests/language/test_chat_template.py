"""Chat templates are programs that somebody else wrote: what they may do, and how they end where they do more."""

from __future__ import annotations

import pytest

from hetsched.errors import ModelError, OptionError
from hetsched.language import template_sandbox
from hetsched.language.chat_template import render

TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]


@pytest.mark.parametrize(
    ("template", "want"),
    [
        ("{% for m in messages %}{{ loop.index }}{{ loop.last }}{{ loop.length }}{{ m.role[0] ~ ':' + m['content'] }} {% endfor %}",
         "1False2u:hi 2True2a:ho "),
        ("{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}", "role=user;content=hi;"),
        ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", "hi"),
        ("{% for m in nothing %}x{% else %}none{% endfor %}", "none"),
        ("{% set ns = namespace(n=1) %}{% for m in messages[1:] %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n * 3 }}", "6"),
        ("{{ 'ab' * 2 }}{{ 2 ** 3 }}{{ [1] * 2 + [2] }}{{ 0.5 * 4 }}{{ nothing }}", "abab8[1, 1, 2]2.0"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}{{ messages[0] | tojson }}",
         '01{"role": "user", "content": "hi"}'),
    ],
)  # fmt: skip
def test_what_templates_say(template: str, want: str) -> None:
    assert render(template, TALK) == want


DEEP = "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"
RECURSIVE = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"


@pytest.mark.parametrize(
    "template",
    ["{{ 1 / 0 }}", "{{ 1 + 'a' }}", "{{ '%d' % 'a' }}", "{{ '{}{}'.format(1) }}", "{{ 'a'.encode('foo') }}",
     "{% include 'x' %}", "{% if %}",
     "{% for i in 5 %}{% endfor %}", "{{ cycler() }}", "{{ nothing.x }}", "{{ nothing | tojson }}", "{{ messages.append(1) }}",
     "{% for i in range(99999999) %}{% endfor %}", RECURSIVE, DEEP, "{{ 'a' * 'b' }}", "{{ 'x'.ljust(10 ** 14) }}"],
)  # fmt: skip
def test_every_failure_is_one_sentence(template: str) -> None:
    with pytest.raises(ModelError, match="the model's chat template cannot be rendered") as caught:
        render(template, TALK)
    assert len(str(caught.value)) < 400
    with pytest.raises(OptionError, match="refuses these messages: only pairs"):
        render("{{ raise_exception('only pairs') }}", TALK)


GROWING = "{%% set ns = namespace(s=%s) %%}{%% for i in range(60) %%}{%% set ns.s = ns.s %s ns.s %%}{%% endfor %%}{{ ns.s | length }}"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}", "more than 5000 steps"),
        ("{% set a = range(99) | list %}{% for i in a %}{% for j in a %}{% endfor %}{% endfor %}", "more than 5000 steps"),
        ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}", "more than 5000 steps"),
        (GROWING % ("'x'", "~"), "a value of more than"), (GROWING % ("'x'", "+"), "a value of more than"),
        (GROWING % ("3", "*"), "a value of more than"), ("{{ 'x' * 10 ** 12 }}", "a value of more than"),
        ("{{ 10 ** (10 ** 12) }}", "a value of more than"), ("{{ [1] * 10 ** 12 }}", "a value of more than"),
    ],
)  # fmt: skip
def test_work_and_memory_are_limited(template: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_sandbox, "MAX_STEPS", 5000)
    monkeypatch.setattr(template_sandbox, "MAX_HELD", 1 << 16)
    with pytest.raises(ModelError, match=f"the chat template .*{message}.*give --raw"):
        render(template, TALK)
