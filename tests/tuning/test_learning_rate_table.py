"""`LearningRateTable`: the verdict on each rate, and what the table says to do."""

import numpy as np
import pytest

from keras_mhmcmc.samplers.parts.rate_adaptation import LOW
from keras_mhmcmc.tuning import LearningRateTable
from keras_mhmcmc.tuning import learning_rate
from keras_mhmcmc.tuning.trial import Outcome


def rows(outcomes, start=(2.0, 2.1, 1.9)):
    rates = [0.01 * 2**place for place in range(len(outcomes))]
    return learning_rate._rows(rates, np.array(start), outcomes)


NAN = float("nan")


@pytest.mark.parametrize(
    ("outcomes", "verdicts"),
    [
        # A network that a large step has turned off is not taken.
        (
            [(1.8, NAN), (0.1, NAN), (0.9, NAN), (1.7, NAN), (2.5, NAN)],
            "too slow, passes, passes, falls too little, does not fall",
        ),
        (
            [(1.0, 1.0), (0.5, LOW), (0.4, LOW - 0.01), (1.9, 1.0)],
            "passes, passes, moves rejected, falls too little",
        ),
        ([(0.5, NAN), (NAN, NAN)], "passes, not finite"),
        ([(NAN, NAN), (NAN, NAN)], "not finite, not finite"),
        # Less than the noise of the energy at the start.
        ([(1.95, NAN), (1.98, NAN)], "does not fall, does not fall"),
    ],
)
def test_verdicts(outcomes, verdicts):
    made = rows([Outcome(e, a, bool(np.isfinite(e))) for e, a in outcomes])
    assert ", ".join(row["verdict"] for row in made) == verdicts


@pytest.mark.parametrize(
    ("outcomes", "rate", "advice"),
    [
        ([(0.1, NAN), (0.2, NAN), (1.9, NAN)], 0.02, "Begin at 0.02 or below"),
        ([(0.1, NAN), (0.2, NAN)], 0.02, "add larger `rates`"),
        ([(0.5, 0.0)], None, "smaller `rates`, or raise the temperature"),
        ([(1.99, NAN)], None, "not trained yet"),
        ([(NAN, NAN)], None, "smaller `rates`, and look for such values"),
    ],
)
def test_the_table_says_what_to_do(outcomes, rate, advice):
    made = rows([Outcome(e, a, bool(np.isfinite(e))) for e, a in outcomes])
    table = LearningRateTable(made, "SGD", "loss")
    assert table.rate == rate
    assert advice in table.advice and advice in repr(table)
    assert ("accepted" in repr(table)) == (outcomes[0][1] == 0.0)
    heads = list(pytest.importorskip("pandas") and table.to_pandas().columns)
    assert heads == ["learning_rate", "start", "end", "acceptance", "verdict"]
