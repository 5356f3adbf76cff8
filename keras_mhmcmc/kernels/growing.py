"""Build the kernels for `mh.sample` whose mini-batch grows until a test can decide."""

from typing import Any

from keras_mhmcmc.algorithms.austerity import Austerity
from keras_mhmcmc.algorithms.barker import Barker
from keras_mhmcmc.algorithms.confidence import Confidence


def barker(
    learning_rate: float,
    *,
    max_error: float | None = None,
    temperature: float = 1.0,
    block_size: int = 512,
) -> Barker:
    """Return the Barker test on mini-batches, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) approximately, with a fixed step. The energy U in nats
    is minus the log density. It needs no bounds. A step accepts with Barker's
    probability 1 / (1 + exp(-Delta)), with Delta = (U at the position - U at the
    proposal) / T. The noise of a mini-batch takes the place of a part of the test's own
    noise, so the batch grows until the variance of its estimate of Delta is below 1
    nat^2.

    The bias comes from estimates of Delta that are not normal: from small batches, and
    from skewed differences of the log-likelihoods. An example of likelihood 0 outside
    the batch is not seen: likelihoods must be positive everywhere. In a logistic
    regression with 40 rows, batches from 10 rows on moved the means by 0.2 standard
    deviations. Batches of all of the data have no bias, up to 7e-7 of an acceptance
    probability. `draws.info` has the mean `batch_size` of each chain. Barker's test
    accepts only half of the moves that leave the density unchanged.

    Args:
        learning_rate: standard deviation of the random walk, greater than 0.
        max_error: bound of the error of each acceptance probability, greater than 0.
            The batch grows until the bound of the paper's corollary 1 is below it. The
            bound is loose: 0.1 takes 14,000 examples or more. None: the variance alone
            decides. Defaults to None.
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples of the first batch, and by how many it grows, at least 2.
            Defaults to 512.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> import numpy as np
    >>> from keras import ops
    >>> y = np.random.default_rng(0).normal(1.0, 1.0, size=2000).astype("float32")
    >>> draws = mh.sample(
    ...     mh.kernels.barker(0.02, block_size=200),
    ...     1.0,
    ...     log_likelihood=lambda theta, y: -0.5 * ops.square(y - theta),
    ...     data=y,
    ...     num_steps=100,
    ...     progress=False,
    ... )
    >>> draws.position.shape
    (1, 100)

    Reference: Seita, Pan, Chen and Canny (2017), "An efficient minibatch acceptance
    test for Metropolis-Hastings", algorithm 1.
    """
    return Barker(learning_rate, max_error, temperature, block_size)


def austerity(
    learning_rate: float,
    *,
    epsilon: float = 0.01,
    temperature: float = 1.0,
    block_size: int = 512,
) -> Austerity:
    """Return the sequential t-test on mini-batches, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) approximately, with a fixed step. The energy U in nats
    is minus the log density. It needs no bounds. A step draws the uniform of
    Metropolis-Hastings first, which says how large the mean difference of the
    log-likelihoods must be. The batch grows until a t-test can tell on which side the
    mean is, or until it is all of the data.

    A smaller `epsilon` reads more examples and decides wrongly less often. `epsilon=0`
    reads all of the data, and is exact. With a larger one, likelihoods must be
    positive everywhere: an example of likelihood 0 outside the batch is not seen.
    `draws.info` has the mean `batch_size` of each chain.

    Args:
        learning_rate: standard deviation of the random walk, greater than 0.
        epsilon: level of the t-test at each look, in [0, 0.5). Less than 1e-12 counts
            as 0. Defaults to 0.01.
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples of the first batch, and by how many it grows, at least 2.
            The t-test needs a nearly normal mean of so many examples. Defaults to 512.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.austerity(0.02, epsilon=0.001)

    Reference: Korattikara, Chen and Welling (2014), "Austerity in MCMC land: cutting
    the Metropolis-Hastings budget", algorithm 1.
    """
    return Austerity(learning_rate, epsilon, temperature, block_size)


def confidence(
    learning_rate: float,
    *,
    bounds: Any,
    delta: float = 0.1,
    temperature: float = 1.0,
    block_size: int = 512,
) -> Confidence:
    """Return the confidence sampler, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) approximately, with a fixed step. The energy U in nats
    is minus the log density. With a probability of at least 1 - `delta` a step decides
    as Metropolis-Hastings on all of the data. This holds without any assumption of
    normality. It needs a bound for each example, as `mh.kernels.tuna` does. `mh.bounds`
    has the bounds of common models. A bound that does not hold ends the run with an
    error.

    The batch is doubled until a concentration bound can decide, or until it is all of
    the data. The concentration bound is in proportion to the largest of the `bounds`,
    so the kernel often reads all of the data: look at the mean `batch_size` in
    `draws.info`.

    Args:
        learning_rate: standard deviation of the random walk, greater than 0.
        bounds: c_i of each example, nats per unit of distance, an array (N,) of numbers
            of at least 0. The distance is the Euclidean one over all tensors.
        delta: probability of another decision than that on all of the data, in (0, 1).
            Defaults to 0.1.
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples of the first batch, at least 2. Defaults to 512.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(1000, 3))
    >>> kernel = mh.kernels.confidence(0.05, bounds=mh.bounds.logistic_regression(x))

    Reference: Bardenet, Doucet and Holmes (2014), "Towards scaling up Markov chain
    Monte Carlo: an adaptive subsampling approach"; Bardenet, Doucet and Holmes (2017),
    "On Markov chain Monte Carlo methods for tall data".
    """
    return Confidence(learning_rate, bounds, delta, temperature, block_size)
