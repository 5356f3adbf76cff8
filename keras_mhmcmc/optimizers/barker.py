"""The mini-batch Barker test as a Keras optimizer."""

from collections.abc import Sequence
from typing import Any
from typing import Literal

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._backend import ops
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms.barker_steps import BarkerSteps
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.optimizers.tested_chain import TestedChain
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.schedules import Schedule


@serializable
class Barker(Sampler):
    """Metropolis-Hastings with the mini-batch Barker test, for `mh.BarkerChain`.

    It samples exp(-U/T) approximately. The energy U in nats is train_size * loss -
    log prior. The bias comes from the accept-reject test:

    - The test takes a mean over a mini-batch for a normal variable. So skewed
      differences of the log-likelihoods, and batches whose variance is small by chance,
      make it decide wrongly.
    - The tests of an epoch share no examples, which correlates their errors slightly.
    - If an example has likelihood 0 at the proposal, and is not in the batch, the test
      does not see this.

    A test on all of the data has none of these biases.

    A proposal is theta' = theta + learning_rate * Z, with Z normal: a random walk,
    which needs no gradient. A step evaluates each example of its mini-batch at theta
    and at theta', and adds the differences to those of the steps before. They give an
    estimate of log r = (U(theta) - U(theta')) / T. The batch grows until this estimate
    has a variance below 1, or until it is all of the data. Then the test accepts with
    nearly Barker's probability 1 / (1 + exp(-log r)), which is one half for equal
    densities.

    The model always holds theta: validation, checkpoints and samples see the state. An
    iteration is a mini-batch, and a test takes one iteration or several. If an epoch
    ends during a test, the next epoch begins the test anew, with the same proposal. A
    proposal whose losses are not finite is rejected and counted.

    A random walk in d dimensions needs about d accepted moves, or more, for an
    independent sample. So this sampler is for small networks, for last layers, and for
    a few weights of a trained network, with the other layers frozen
    (`trainable=False`). The start should be near the mode: train with an optimizer
    first. For a whole network take `mh.SGHMC`. The sampler keeps one copy of the
    weights that move.

    `acceptance` in the logs is the share of accepted proposals. `examples_per_test` is
    the mean number of examples of a test. Both count the tests that ended in the epoch.

    Args:
        learning_rate: standard deviation of a proposal, in units of the weights. A
            number greater than 0, or a schedule. Longer moves need more examples for
            each test.
        train_size: number of training examples, N. Defaults to "auto",
            which reads it from `fit`.
        min_examples: smallest number of examples that decides a test, an integer of at
            least 2. If N is smaller, all of the data decide. A larger number lowers the
            bias. Defaults to 100.
        temperature: T, greater than 0. 1 gives the posterior. Defaults to 1.
        prior: such as `mh.priors.Gaussian(scale)`. None is a flat prior.
        seed: integer in [0, 2**31) that makes the noise repeatable. None draws one.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is outside its range, or an option of the Keras base
            class would change the sampled distribution; or, in `fit`, the model is no
            `mh.BarkerChain`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.Barker(0.02, train_size=1000)

    Reference: Seita, Pan, Chen and Canny (2017), "An efficient minibatch acceptance
    test for Metropolis-Hastings", algorithm 1.
    """

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        train_size: int | Literal["auto"] = "auto",
        min_examples: int = 100,
        temperature: float = 1.0,
        prior: Prior | None = None,
        seed: int | None = None,
        name: str = "barker",
        **options: Any,
    ) -> None:
        if not isinstance(learning_rate, Schedule):
            learning_rate = _validate.number(
                "learning_rate",
                learning_rate,
                _validate.POSITIVE,
                hint="A `LearningRateSchedule` will do as well.",
            )
        algorithm = BarkerSteps(None, temperature, min_examples)
        super().__init__(
            learning_rate,
            algorithm=algorithm,
            train_size=train_size,
            prior=prior,
            seed=seed,
            name=name,
            chain=TestedChain(),
            options=options,
        )
        self._steps = algorithm

    def use_chains(self, num_chains: int) -> None:
        """Refuse several chains: each would need a test of its own."""
        raise ValueError(
            "Argument `optimizer` of an `mh.ParallelChains` must be another sampler "
            "than `mh.Barker`, which tests a single chain. Fit an `mh.BarkerChain` for "
            "each chain, and load their directories with "
            f"`mh.PosteriorSamples.load([...])`. Received: {num_chains} chains"
        )

    def apply(
        self,
        grads: Sequence[Tensor],
        trainable_variables: Sequence[keras.Variable] | None = None,
    ) -> None:
        """Refuse gradients: the test needs the losses of single examples."""
        raise ValueError(
            "Argument `optimizer` must be another sampler than `mh.Barker` for this "
            "model: the test needs the losses of single examples. Fit "
            "`mh.BarkerChain(model)`, compiled with this optimizer and the same loss. "
            f"Received: gradients of {len(list(grads))} variables"
        )

    def proposal(self) -> Position:
        """Return the proposed weights, a tensor for each sampled variable."""
        self._check_loss()
        return self._steps.proposal(self._parts.state.read())

    @_backend.uncompiled
    def test(self, here: Tensor, there: Tensor) -> None:
        """Add a mini-batch to the test of the proposal, and decide if it is enough.

        Args:
            here: negative log-likelihood of each example at the state, nats, (B,).
            there: the same at the `proposal`.
        """
        state, parts = self._parts.state.read(), self._parts
        here, there = (ops.cast(nats, "float32") for nats in (here, there))
        energy = self.train_size * ops.mean(here)
        prior = ops.zeros_like(energy)
        if self._bound_prior is not None:
            before = self._bound_prior.energy(state.point, like=energy)
            after = self._bound_prior.energy(self.proposal(), like=energy)
            energy, prior = energy + before, before - after
        rate = ops.cast(self.learning_rate, "float32")
        evaluation = self._evaluation(state.point, [], energy, rate)
        state, info = self._steps.test(state, -here, -there, prior, evaluation)
        counts = [info.counts[name] for name in self._steps.traits.counts]
        counts = ops.convert_to_tensor(self._counts) + ops.stack(counts)
        recorded = parts.energies.recorded(energy, None)
        _backend.write([parts.energies.variable, self._counts], [recorded, counts])
        self._chain.store(state)
        self.iterations.assign_add(1)
