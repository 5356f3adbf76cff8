"""Predicts with an ensemble whose weights two devices of JAX divide; prints JSON."""

import json
import sys

import jax
import keras
import numpy as np

import keras_mhmcmc as mh
from tests.support.distribution_process import wide
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit

WAYS = {
    "members": {"ensemble.*kernel": ("member", None, None)},
    "units": {".*hidden.*kernel.*": (None, "model"), ".*hidden.*bias.*": ("model",)},
    # The path of the model alone, which the path of the ensemble does not match.
    "model": {"sequential/hidden/kernel": (None, "model")},
}


def divided(patterns):
    """A distribution over two devices."""
    names = [name for value in patterns.values() for name in value if name is not None]
    mesh = keras.distribution.DeviceMesh((1, 2), ["batch", names[0]])
    layout = keras.distribution.LayoutMap(mesh)
    for pattern, axes in patterns.items():
        layout[pattern] = axes
    return keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")


def main():
    """Sample without and with each distribution, and predict."""
    assert jax.device_count() == 2
    x, _ = data()
    reports = {}
    for way in ("one", *sys.argv[1:]):
        patterns = WAYS.get(way)
        keras.utils.clear_session()
        distribution = None if patterns is None else divided(patterns)
        keras.distribution.set_distribution(distribution)
        model = compiled(mh.SGHMC(0.05, train_size=96, seed=3), wide())
        posterior = mh.PosteriorSamples()
        fit(model, epochs=2, callbacks=[posterior])
        ensemble = posterior.ensemble(model, chunk=2)
        predictions = ensemble.predict(x, batch_size=24, verbose=0)
        members = ensemble.predict_members(x, batch_size=24)
        assert keras.distribution.distribution() is distribution
        kernel = ensemble.weights[0].value
        reports[way] = {
            "predictions": np.asarray(predictions).tolist(),
            "members": np.asarray(members).tolist(),
            "shard": list(kernel.addressable_shards[0].data.shape),
        }
    keras.distribution.set_distribution(None)
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
