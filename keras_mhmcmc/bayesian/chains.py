"""The second phase: chains from the trained networks, on all data or in batches."""

import functools
import math
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import kernels
from keras_mhmcmc._data import rows
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.bayesian.data import Shuffled
from keras_mhmcmc.bayesian.members import give_weights
from keras_mhmcmc.bayesian.progress import Progress
from keras_mhmcmc.bayesian.scores import Nats
from keras_mhmcmc.fit.run_watch import NoSampleError
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.parallel.chains import ParallelChains
from keras_mhmcmc.posterior.callback import PosteriorSamples
from keras_mhmcmc.priors import Gaussian
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.reuse import log_density
from keras_mhmcmc.sampling.run import sample

tree = keras.tree

WARM_UP = 5000  # steps
_LEAST_WARM_UP = 1000
# Steps of a trial after its warm-up, as a part of those of the last chains.
PILOT = 0.25
ENERGY_ERROR = 0.1  # per dimension, as in Sommer and others (2025)
_RATES = (0.3, 1.0, 3.0, 10.0)  # on mini-batches, times the usual one
# Steps from which on to compile pays. On PyTorch 4,000 steps of eight chains with 277
# rows went from 71 to 31 seconds, on TensorFlow from 14 to 17; with 7,373 rows a step
# went from 24 to 7 ms there.
COMPILED = 1500
# Activations of one number at a time. On TensorFlow, Keras' losses read the logits of a
# sigmoid back from its outputs.
_OF_NUMBERS = [
    getattr(keras.activations, name)
    for name in ("linear", "relu", "elu", "gelu", "silu", "softplus", "tanh")
]
_TOO_LARGE = 10.0  # times what was asked for: such a chain gives no sample


@dataclass(frozen=True)
class Setting:
    """What the held-out examples choose."""

    temperature: float = 1.0
    prior: float = 1.0  # standard deviation of a weight
    rate: float | None = None  # of a sampler on mini-batches

    def __str__(self) -> str:
        rate = "" if self.rate is None else f", rate={self.rate:g}"
        return f"T={self.temperature:g}, prior={self.prior:g}{rate}"


@dataclass
class Samples:
    """Weights of networks from several chains."""

    stacked: list[Array]  # (samples, ...) for each of `model.weights`
    left_out: dict[int, float] = field(default_factory=dict)  # chain: energy error
    returns: dict[int, int] = field(default_factory=dict)  # chain: times sent back
    steps: int = 0
    ends: list[Array] | None = None  # where chains that are still on their way ended

    def __len__(self) -> int:
        return len(self.stacked[0])


class AllData:
    """Chains whose steps need the gradient of all data, by `mh.sample`.

    A position is one flat vector: a step of a sampler is then one operation, and not
    one for each weight of the network. The chains see the network as it predicts:
    without dropout, and with the weights of its start that are not trained.

    Args:
        model: compiled.
        data: `(x, y, sample_weight)` arrays.
        is_training: which of the examples are not held out, (N,).
        kernel: of `mh.kernels`. None: microcanonical Langevin dynamics.
        seed: of the first run.
        progress: whether to show bars.
    """

    def __init__(
        self,
        model: keras.Model,
        data: tuple[Any, Any, Any],
        is_training: Array,
        kernel: Any,
        seed: int,
        progress: Progress,
    ) -> None:
        self._model, self._kernel, self.seed = model, kernel, seed
        self._progress = progress
        self._data, self._is_training = data, is_training
        self._likelihood = Nats(model)
        places = {id(v): place for place, v in enumerate(model.weights)}
        self._own = [places[id(v)] for v in model.trainable_variables]
        self._others = sorted(set(places.values()) - set(self._own))
        self._log_likelihoods: dict[bytes, Callable[..., Tensor]] = {}
        self._goes_on = False
        self.plan(WARM_UP)

    def plan(self, steps: int, is_cheap: bool = True) -> float:
        """Set the warm-up for so many steps after it. Return how long a trial is.

        A trial is a part of these steps, and has the same warm-up: so one compiled
        program serves all. Where a gradient is not cheap, or with fewer steps than a
        warm-up needs, the last chains go on where those of the trial ended. On kin8nm a
        warm-up twice as long changed nothing.
        """
        if self._kernel is not None:
            self.warm_up = min(steps, WARM_UP)
            return PILOT
        self._goes_on = steps < WARM_UP or not is_cheap
        third = max(steps // 3, min(steps, _LEAST_WARM_UP))  # a step needs to settle
        self.warm_up = third if self._goes_on else WARM_UP
        return 1 / 3 if self._goes_on else PILOT

    def run(
        self,
        starts: Sequence[Array],
        setting: Setting,
        steps: int,
        kept: int,
        is_pilot: bool,
    ) -> Samples:
        """Return samples of exp(-U/T), of which the last `steps` give `kept` a chain.

        Args:
            starts: one array (chains, ...) for each of `model.weights`.
            setting: temperature and prior.
            steps: after the warm-up, which the kernel may have of its own.
            kept: samples of a chain.
            is_pilot: whether the held-out examples do not count.
        """
        # Chains with other statistics, such as of batch normalisation, run apart.
        groups: dict[bytes, list[int]] = {}
        for chain in range(len(starts[0])):
            values = [starts[place][chain].tobytes() for place in self._others]
            groups.setdefault(b"".join(values), []).append(chain)
        parts: list[Samples] = []
        ends = [array.copy() for array in starts] if self._goes_on else None
        left_out: dict[int, float] = {}
        returns: dict[int, int] = {}
        for key, group in groups.items():
            own = [array[group] for array in starts]
            if key not in self._log_likelihoods:
                others = [own[place][0] for place in self._others]
                function = self._make_log_likelihood(others)
                self._log_likelihoods[key] = log_density(function)
            part = self._run(key, own, setting, steps, kept, is_pilot, group[0])
            parts.append(part)
            sound = [chain for k, chain in enumerate(group) if k not in part.left_out]
            if ends is not None and sound:
                each = len(part) // len(sound)  # samples of a chain
                for place in self._own:
                    ends[place][sound] = part.stacked[place][each - 1 :: each]
            left_out |= {group[k]: error for k, error in part.left_out.items()}
            returns |= {group[k]: count for k, count in part.returns.items()}
        stacked = parts[0].stacked  # views of what all samples share
        if len(parts) > 1:
            pairs = zip(*(part.stacked for part in parts), strict=True)
            stacked = [np.concatenate(arrays) for arrays in pairs]
        return Samples(stacked, left_out, returns, parts[0].steps, ends)

    def _run(
        self,
        key: bytes,
        starts: Sequence[Array],
        setting: Setting,
        steps: int,
        kept: int,
        is_pilot: bool,
        first: int,
    ) -> Samples:
        """Return samples of chains with the same weights that are not trained."""
        count = len(starts[0])
        flat = [np.reshape(starts[place], (count, -1)) for place in self._own]
        x, y, weights = self._data
        size = len(self._is_training)
        each = np.ones(size, "float32")
        if weights is not None:
            each = tree.flatten(weights)[0].astype("float32")
            each = each[:, *[0] * (each.ndim - 1)]
        if is_pilot:
            each = each * self._is_training
        inverse = 1.0 / setting.temperature
        share = 0.5 * inverse / (setting.prior**2 * size)
        factors = np.tile(np.array([[inverse, share]], "float32"), (size, 1))
        kernel = self._kernel
        if kernel is None:
            # docs/benchmark.md has the nats of other powers and decoherence lengths.
            kernel = kernels.mclmc(
                warm_up=self.warm_up, energy_error=ENERGY_ERROR, scale_power=0.5
            )
        warm_up = kernel.traits.warm_up or self.warm_up
        run = functools.partial(
            sample,
            kernel,
            np.concatenate(flat, axis=1),
            log_likelihood=self._log_likelihoods[key],
            data=(x, y, each, factors),
            num_steps=warm_up + steps,
            num_chains=count,
            burn_in=warm_up,
            every=-(-steps // kept),
            seed=self.seed + first,
            progress=self._progress.is_shown,
        )
        is_long = self._kernel is None and warm_up + steps >= COMPILED
        draws = _compiled(run) if is_long and _backend.can_compile() else run()
        if draws.interrupted:
            raise KeyboardInterrupt
        is_sound, left_out, returns = np.ones(count, bool), {}, {}
        if self._kernel is None:
            errors = np.asarray(draws.info["energy_error"])
            is_sound = errors <= _TOO_LARGE * ENERGY_ERROR  # never true of NaN
            left_out = {int(k): float(errors[k]) for k in np.flatnonzero(~is_sound)}
            backs = np.asarray(draws.info["returns"])
            returns = {int(k): int(backs[k]) for k in np.flatnonzero(backs)}
        moved = np.asarray(draws.position)[is_sound]
        moved = moved.reshape(-1, moved.shape[-1])
        number = len(moved)
        stacked = [
            np.broadcast_to(values[0], (number, *values.shape[1:])) for values in starts
        ]
        ends = np.cumsum([part.shape[1] for part in flat])
        parts = np.split(moved, ends[:-1], axis=1)
        for place, values in zip(self._own, parts, strict=True):
            stacked[place] = values.reshape(number, *stacked[place].shape[1:])
        return Samples(stacked, left_out, returns, warm_up + steps)

    def _make_log_likelihood(self, others: Sequence[Array]) -> Callable[..., Tensor]:
        """Return the function for `mh.sample`."""
        model, likelihood = self._model, self._likelihood
        predict = functools.partial(model, training=False)
        if _is_dense(model) and len(tree.flatten(self._data[0])) == 1:
            predict = functools.partial(_of_columns, model.layers)
        constants = [
            (model.weights[place], value)
            for place, value in zip(self._others, others, strict=True)
        ]

        def log_likelihood(position: Any, batch: Any) -> Tensor:
            x, y, each, factors = batch
            pairs, begin = list(constants), 0
            for variable in model.trainable_variables:
                end = begin + math.prod(variable.shape)
                values = ops.reshape(position[begin:end], variable.shape)
                pairs.append((variable, values))
                begin = end
            with keras.StatelessScope(pairs):
                outputs = predict(x)
            prior = ops.sum(ops.square(position))
            nats = ops.sum(likelihood.nats(y, outputs), axis=1)
            return -each * factors[:, 0] * nats - factors[:, 1] * prior

        return log_likelihood


def _is_dense(model: keras.Model) -> bool:
    """Return whether a model is a stack of dense layers, and nothing else."""
    if type(model) is not keras.Sequential:
        return False
    (x,) = model.inputs
    return (len(x.shape), x.dtype) == (2, "float32") and all(
        type(layer) is keras.layers.Dense
        and layer.activation in _OF_NUMBERS
        and layer.use_bias
        and not layer.lora_enabled
        and layer.quantization_mode is None
        and layer.compute_dtype == "float32"
        for layer in model.layers
    )


def _of_columns(layers: Sequence[Any], x: Any) -> Tensor:
    """Return what dense layers predict, by products that have an example a column.

    A CPU takes three quarters of the time for them: with 7,373 rows and 16-16 units
    eight chains took 5.5 ms a step, and 4.3 so (JAX, two cores).
    """
    (x,) = tree.flatten(x)  # (N, features), or (N,) for one feature
    x = ops.transpose(ops.reshape(x, (-1, layers[0].kernel.shape[0])))
    for layer in layers:
        x = ops.matmul(ops.transpose(layer.kernel), x) + layer.bias[:, None]
        x = layer.activation(x)
    return ops.transpose(x)


def _compiled(run: Callable[..., Draws]) -> Draws:
    """Return the draws of a compiled run, or of one that is not if that fails."""
    try:
        return run(jit_compile=True)
    except Exception as error:
        warn(
            "The chains could not be compiled, and run slower. To compile, mend this: "
            f"{type(error).__name__}: {str(error)[:200]}"
        )
    return run()


class MiniBatches:
    """Chains of a sampler in `fit`, by `mh.ParallelChains`."""

    def __init__(
        self,
        model: keras.Model,  # compiled
        compiled: dict[str, Any],  # arguments of `compile` besides the optimizer
        data: tuple[Any, Any, Any],  # x, y, sample_weight
        is_training: Array,  # which of the examples are not held out, (N,)
        batch_size: int,
        terms: float,  # of an example, over which the loss is a mean
        sampler: Sampler | type[Sampler],  # a class gets the setting
        seed: int,  # of the first run
        progress: Progress,
    ) -> None:
        self._model, self._compiled = model, compiled
        self._sampler: Any = sampler
        self._data, self._is_training = data, is_training
        self._batch_size, self._terms, self._seed = batch_size, terms, seed
        self._progress = progress
        self.rates: list[float] = []  # to try: a sampler of the user's has its own
        if isinstance(sampler, type):
            self.rates = [factor * sampler.usual_rate for factor in _RATES]

    def run(
        self,
        starts: Sequence[Array],
        setting: Setting,
        steps: int,
        kept: int,
        is_pilot: bool,
    ) -> Samples:
        """Return samples of the second half of `steps`, as `AllData.run` does."""
        data = self._data
        if is_pilot:
            data = rows(data, self._is_training)
        size = round(self._terms * len(tree.flatten(data)[0]))
        batches = Shuffled(data, self._batch_size, self._seed)
        epochs = max(1, -(-steps // len(batches)))
        steps = epochs * len(batches)
        chains = ParallelChains(self._model, len(starts[0]), seed=self._seed)
        chains.compile(self._made(setting, size), **self._compiled)
        give_weights(chains, starts)
        burn_in = steps // 2
        every = -(-(steps - burn_in) // kept)
        posterior = PosteriorSamples(burn_in=burn_in, every=every)
        phase = f"{'trial' if is_pilot else 'samples'} {setting}"

        def tell(epoch: int, logs: dict[str, Any]) -> None:
            loss = float(np.mean(logs["loss"]))
            self._progress.tell(phase, epoch + 1, epochs, loss=loss)

        told = keras.callbacks.LambdaCallback(on_epoch_end=tell)
        chains.fit(
            batches,
            epochs=epochs,
            shuffle=False,  # Keras draws from the state of all programs
            callbacks=[posterior, told],
            verbose=0,
        )
        if not len(posterior):
            return Samples([np.zeros(0)])
        try:
            ensemble = posterior.ensemble(chains)
        except NoSampleError:
            return Samples([np.zeros(0)])
        return Samples(ensemble.stacked_values(), steps=steps)

    def _made(self, setting: Setting, size: int) -> Sampler:
        if isinstance(self._sampler, Sampler):
            config = self._sampler.get_config() | {"train_size": size}
            return type(self._sampler).from_config(config)
        kind: Callable[..., Sampler] = self._sampler
        return kind(
            setting.rate,
            train_size=size,
            temperature=setting.temperature,
            prior=Gaussian(setting.prior),
            seed=self._seed,
        )
