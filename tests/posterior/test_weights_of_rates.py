"""`weight_by="learning_rate"` with rates that a callback of Keras sets."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import compiled
from tests.support.models import data

RATES = [4e-4, 2e-4, 1e-4, 1e-4]


@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_sample_has_the_rate_of_the_step_that_leaves_it(every, is_first):
    x, y = (array[:16] for array in data())
    model = compiled(mh.SGLD(RATES[0], train_size=16, seed=1))
    posterior = mh.PosteriorSamples(every=every, weight_by="learning_rate")
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch: RATES[epoch])
    callbacks = [posterior, scheduler] if is_first else [scheduler, posterior]
    model.fit(x, y, batch_size=8, epochs=4, callbacks=callbacks, verbose=0)
    assert posterior.iterations.tolist() == [2, 4, 6, 8]
    # No step leaves the last sample, which has the last rate.
    expected = np.array([*RATES[1:], RATES[-1]])
    np.testing.assert_allclose(posterior.weights, 4 * expected / expected.sum(), 1e-5)
