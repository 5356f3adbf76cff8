"""A version of jaxlib with wrong results is named, and sums of the present one hold."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh

pytestmark = pytest.mark.every_backend

IS_JAX = keras.backend.backend() == "jax"


@pytest.mark.skipif(not IS_JAX, reason="versions of jaxlib")
def test_jaxlib_with_wrong_sums_is_named():
    from keras_mhmcmc._backend.jax.core import _warn_of_wrong_sums

    with pytest.warns(UserWarning, match="jaxlib 0.10.2 computes wrong sums"):
        _warn_of_wrong_sums("0.10.2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _warn_of_wrong_sums("0.10.1")


@pytest.mark.parametrize("chains", [800, 1200, 2000])
def test_energies_of_many_chains_are_right(chains):
    """With jaxlib 0.10.2 the energies from chain 819 on were wrong."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)).astype("float32")
    start = rng.normal(size=(chains, 2)).astype("float32")
    draws = mh.sample(
        mh.kernels.mhbt(0.1),
        start,
        log_likelihood=lambda theta, x: -ops.softplus(ops.sum(x * theta, axis=-1)),
        data=x,
        num_steps=1,
        num_chains=chains,
        progress=False,
    )
    position = draws.position[:, 0].astype("float64")
    expected = np.logaddexp(0, position @ x.T).sum(axis=1)
    np.testing.assert_allclose(draws.info["energy"][:, 0], expected, rtol=1e-4)
