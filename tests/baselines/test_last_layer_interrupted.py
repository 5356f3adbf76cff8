"""`sample_last_layer` and Ctrl-C: what comes back of a run that is not whole."""

import warnings

import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.sampling import loop
from tests.baselines.test_last_layer import QUICK
from tests.baselines.test_last_layer import X
from tests.baselines.test_last_layer import Y
from tests.baselines.test_last_layer import network
from tests.support.models import CLASSES


def stop_after(steps, monkeypatch):
    """Send Ctrl-C once as many steps are done."""
    piece = loop.Plan.piece

    def interrupted(plan, done, *others):
        if done >= steps:
            raise KeyboardInterrupt
        return piece(plan, done, *others)

    monkeypatch.setattr(loop.Plan, "piece", interrupted)
    monkeypatch.setattr(loop, "_SECONDS", 1e-9)  # one step at a time


def test_ctrl_c_gives_the_members_until_then(monkeypatch):
    model = network()
    stop_after(45, monkeypatch)  # of 60 steps, 30 of them burn-in
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        half, found = mh.sample_last_layer(model, X, Y, **QUICK)
    assert any("Interrupted after 4" in str(w.message) for w in caught)
    assert 4 <= half.num_members < QUICK["members"]
    assert np.isfinite(found["acceptance"])
    assert half.predict(X, verbose=0).shape == (len(X), CLASSES)


def test_ctrl_c_before_the_first_member_is_ctrl_c(monkeypatch):
    stop_after(10, monkeypatch)
    with pytest.raises(KeyboardInterrupt, match="before the first draw"):
        mh.sample_last_layer(network(), X, Y, **QUICK)
