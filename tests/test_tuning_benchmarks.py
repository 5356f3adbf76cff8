"""The benchmarks of the pilot and of the suggested learning rates run."""

import keras
import numpy as np
import pytest

from tests.support.example_tools import load


@pytest.mark.slow
def test_the_pilot_table_has_every_chain(monkeypatch, capsys):
    pilot = load("benchmarks/pilot")
    monkeypatch.setattr(pilot, "CHAINS", pilot.CHAINS[:2])
    table = pilot.main(["--epochs", "30"])
    assert list(table) == list(pilot.CHAINS)
    assert all(0.0 <= share <= 1.0 for row in table.values() for share in row)
    assert "| SGHMC, 0.1, N(0, 1²) |" in capsys.readouterr().out


def test_the_shares_of_a_pilot_are_those_of_its_partition():
    pilot = load("benchmarks/pilot")
    steps = pilot.TRAIN // pilot.BATCH
    # The second half is 51 to 100, with the 10% quantile 56: twice as far is 144, four
    # times as far 232.
    rising = np.linspace(0.0, 100.0, 101)[1:]
    for later, reach, expected in ((140, 2, 0), (150, 2, 1), (230, 4, 0), (240, 4, 1)):
        epochs = [np.full(steps, later), np.full(steps, -1.0)]
        energies = np.concatenate([rising, *epochs])
        assert pilot.shares(energies, 100, reach) == (expected, 1.0)


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="a script of tables")
def test_suggested_rates_are_compared(monkeypatch, capsys):
    rates = load("benchmarks/learning_rates")
    monkeypatch.setattr(rates, "RATES", (0.05, 0.2))
    found = rates.main(["--steps", "900"])
    assert set(found) == set(rates.makers(10))
    assert all(len(suggested) == 3 for suggested in found.values())
    assert "| RSGLD |" in capsys.readouterr().out
