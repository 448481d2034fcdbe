"""Scenarios from plain values: names, units, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched.app.scenario import Chat, Scenario
from hetsched.errors import OptionError


def test_options_and_fields_mean_the_same() -> None:
    by_option = Scenario.of({"duration": "10min", "ambient": 35, "period": "33ms", "deadline": "1.5", "seed": None})
    assert by_option == Scenario.of({"duration_s": 600.0, "ambient_c": 35.0, "period_s": 0.033, "deadline_s": 1.5})
    assert by_option == Scenario(duration_s=600.0, ambient_c=35.0, period_s=0.033, deadline_s=1.5)
    assert Scenario.of({}) == Scenario()
    assert Scenario.of({"rate": 30, "poisson": True}).period_s == pytest.approx(1 / 30)


def test_a_chat_is_text_or_a_mapping() -> None:
    assert Scenario.of({"chat": "prompt=64, generate=128"}).chat == Chat(prompt=64, generate=128)
    assert Scenario.of({"chat": {"turns": 3}}).chat == Chat(turns=3)
    assert Scenario.of({"chat": ""}).chat == Chat()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"duration": -1}, r"duration_s = -1: it must be more than 0 \(seconds\)"),
        ({"duration": "48h"}, "duration_s = '48h': it must be at most 86400"),
        ({"duration": "10 parsecs"}, "duration_s = '10 parsecs': it must be a number of seconds"),
        ({"ambient": 120}, "ambient_c = 120: it must be at most 85"),
        ({"ambience_c": 20}, "there is no field 'ambience_c'; did you mean 'ambient_c'"),
        ({"chat": "promt=3"}, "there is no field 'chat.promt'; did you mean 'prompt'"),
        ({"poisson": True}, "^random arrivals and a queue need a period"),
        ({"period": 1, "think": 2}, "exclude each other"),
        ({"period": 1, "rate": 2}, "rate = 2: it must be .* without a period beside it"),
        ({"rate": 1e5, "duration": "24h", "queue": True}, "^more than 5000000 arrivals are too many"),
        ({"period": "1e-9s", "duration": 1, "poisson": True}, "^more than 5000000 arrivals are too many"),
        ({"period": 1e-9, "duration": 1, "chat": ""}, "^more than 5000000 arrivals are too many"),
        ({"background": "cpu=0.1,on=1e-9s,off=1s"}, "background.on = '1e-9s': it must be at least 0.01"),
        ({"background": "cpu=0.1,cpu=0.2"}, "'cpu' is given twice: 0.1 and 0.2"),
        ({"loads": "=3"}, "'=3' has no name"),
        ({"rate": 0}, "rate = 0: it must be 0.0001 to 100000"),
        ({"workload": "a.csv", "think": 1}, "a workload file says what arrives when"),
    ],
)
def test_what_makes_no_sense_is_said(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Scenario.of(values)
