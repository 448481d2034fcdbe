"""Cases: paths side by side as one conductance to one temperature, and what a phone makes of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hetsched.errors import OptionError
from hetsched.soc_quantities import Market
from hetsched_simulations import simulate
from hetsched_simulations.surroundings import Surroundings, shipped, surroundings
from hetsched_simulations.thermal import Network

OWN = """
says: "on a cold plate"
paths:
  - name: plate
    share: {value: 0.5, source: "measured"}
    passes_w_per_m2k: {value: 100, source: "measured"}
    temperature_c: {value: 10, source: "measured"}
  - name: air
    share: {value: 0.5, source: "measured"}
    layer_m2k_per_w: {value: 0.1, source: "felt"}
    passes_w_per_m2k: {value: 10, source: "measured"}
"""


def test_a_table_is_what_the_soc_file_says() -> None:
    assert surroundings("table", 31.0) == Surroundings("table", 31.0, 31.0, 1.0)


def test_paths_side_by_side_are_one_conductance_to_one_temperature(tmp_path: Path) -> None:
    """50 W/m2K to 10 °C beside 0.5 / (0.1 + 0.1) = 2.5 W/m2K to the air, of 13 W/m2K on a table."""
    (tmp_path / "plate.yaml").write_text(OWN)
    found = surroundings(str(tmp_path / "plate.yaml"), 31.0)
    assert found.case == "plate"
    assert found.cooling == pytest.approx(52.5 / 13)
    assert found.seen_c == pytest.approx((50 * 10 + 2.5 * 31) / 52.5)


def test_one_mean_temperature_is_exact(toys: SimpleNamespace) -> None:
    """A network with a branch to the plate and one to the air, each as a node that holds its temperature, against the mean."""
    thermal = toys.soc().thermal
    power = np.array([1.0, 0.5, 2.0, 0.0, 0.3])
    two_ways = Surroundings("x", 31.0, (5.0 * 10 + 0.25 * 31) / 5.25, 5.25)
    steady = Network.of(thermal, two_ways.seen_c, two_ways.cooling).steady(power)
    case_c = float(steady[-1])
    leaves_w = (case_c - 10) * 5.0 / 4.5 + (case_c - 31) * 0.25 / 4.5
    assert leaves_w == pytest.approx(power.sum(), rel=1e-12)


def test_shipped_cases_are_in_the_order_that_everybody_knows() -> None:
    """How hot a phone of 4 W and 4.5 K/W gets at 25 °C: a fan, a hand, a table, a case, a pocket."""
    hot = {name: (found := surroundings(name, 25.0)).seen_c + 4.0 * 4.5 / found.cooling for name in shipped()}
    assert sorted(hot, key=hot.__getitem__) == ["cooled", "hand", "table", "in-a-case", "pocket"]


def test_a_phone_at_rest_has_the_temperature_of_its_surroundings(toys: SimpleNamespace) -> None:
    s = simulate(toys.table([{"compute": 1e-3}]), toys.soc(), [0], toys.on(0), ambient_c=20.0, case="pocket")
    assert s.initial_temperatures_c["case"] == pytest.approx(surroundings("pocket", 20.0).seen_c)
    assert s.phone()["case"]["name"] == "pocket"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("says: x\npaths: []", "paths"),
        (OWN.replace("share: {value: 0.5", "share: {value: 0.4", 1), "add up to 0.9"),
        (OWN.replace("name: plate", "nome: plate"), "nome"),
        ("just text", "not a case"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(OptionError, match=said):
        surroundings(str(path), 25.0)


def test_what_is_no_case(toys: SimpleNamespace) -> None:
    with pytest.raises(OptionError, match="no case is called 'bag': use table, hand"):
        surroundings("bag", 25.0)
    with pytest.raises(OptionError, match="there is no file absent"):
        surroundings("absent.yaml", 25.0)
    laptop = toys.soc().model_copy(update={"market": Market(tier="laptop", release="2024-01", source="test")})
    with pytest.raises(OptionError, match="is no phone: leave --case pocket out"):
        surroundings("pocket", 25.0, laptop)
    assert surroundings("table", 25.0, laptop).cooling == 1.0
