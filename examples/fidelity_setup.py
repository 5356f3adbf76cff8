"""What the samplers of `examples/fidelity.py` share: sizes, networks and starts."""

import functools
import math
from typing import NamedTuple

import fidelity_theory as theory
import keras
import numpy as np
import reference_problems
import references

import keras_mhmcmc as mh


class Size(NamedTuple):
    """How much a problem is sampled."""

    batch_size: int
    chains: int  # of each group
    steps: int  # of each chain; the first quarter is burn-in
    training: int  # steps of Adam before, on all of the data
    paths: int  # of HMC, half of them burn-in
    leapfrog: int  # steps of a path of HMC
    draws: int = 200  # kept of each chain
    groups: int = 3


SIZES = {
    "logistic": Size(91, 6, 20_000, 600, 500, 10),
    "softmax": Size(287, 4, 100_000, 800, 2000, 10),
    "sine": Size(8, 6, 400_000, 3000, 4000, 50),
    "yacht": Size(55, 4, 200_000, 3000, 2000, 30),
    "digits": Size(287, 4, 60_000, 800, 1000, 20),
}
QUICK = Size(91, 4, 1200, 300, 240, 5, 50, 1)


def size_of(name, is_quick):
    """How much a problem is sampled; a quick run is too short for its scores."""
    if not is_quick:
        return SIZES[name]
    return QUICK._replace(batch_size=SIZES[name].batch_size)


class Setup:
    """A problem, its reference, and where the chains of all groups start."""

    def __init__(self, name, size, seed=0, data_dir=None):
        self.problem = reference_problems.problem(name, data_dir)
        self.reference = references.load(name, self.problem)
        self.size, self.seed = size, seed
        self.n = len(self.problem.data["x"])
        self.chains = size.groups * size.chains

    def network(self, has_decay):
        """A Keras model of the problem; with decay its loss has the prior."""
        keras.utils.set_random_seed(self.seed)
        decay = keras.regularizers.L2(0.5 / self.n) if has_decay else None
        shapes = self.problem.shapes
        layers = [keras.Input((shapes["w1"][0],))]
        for number in range(1, 1 + len(shapes) // 2):
            units, is_last = shapes[f"w{number}"][1], f"w{number + 1}" not in shapes
            layers.append(
                keras.layers.Dense(
                    units,
                    self._last() if is_last else "tanh",
                    kernel_regularizer=decay,
                    bias_regularizer=decay,
                    name=f"layer{number}",
                )
            )
        return keras.Sequential(layers)

    def _last(self):
        if self.problem.task == "regression":
            return None
        return "sigmoid" if self.problem.shapes["b1"] == (1,) else "softmax"

    def loss(self):
        """The mean negative log-likelihood."""
        if self.problem.task == "regression":
            return mh.losses.GaussianNLL(reference_problems.NOISE_STD)
        kind = "binary" if self._last() == "sigmoid" else "categorical"
        return f"{kind}_crossentropy"

    def targets(self):
        """What `fit` takes."""
        return self.problem.data["y"].reshape(self.n, -1)

    @functools.cached_property
    def trained(self):
        """Networks that Adam has trained from random weights, `mh.ParallelChains`."""
        steps = self.size.training
        chains = mh.ParallelChains(self.network(True), self.chains, self.seed)
        decay = keras.optimizers.schedules.CosineDecay(0.02, steps)
        chains.compile(keras.optimizers.Adam(decay), self.loss())
        repeats = math.gcd(100, steps)  # in an epoch, for its overhead
        x = np.tile(self.problem.data["x"], (repeats, 1))
        y = np.tile(self.targets(), (repeats, 1))
        chains.fit(x, y, self.n, steps // repeats, verbose=0, shuffle=False)
        return chains

    @functools.cached_property
    def starts(self):
        """The trained weights, a position with a chain axis."""
        return {name: self.weight(self.trained, name) for name in self.problem.shapes}

    def first_start(self):
        """The trained weights of the first chain."""
        return {name: values[0] for name, values in self.starts.items()}

    def weight(self, model, name):
        """A weight of a Keras model by its name in the position."""
        kind = "kernel" if name[0] == "w" else "bias"
        (found,) = (
            keras.ops.convert_to_numpy(weight)
            for weight in model.weights
            if weight.path.endswith(f"layer{name[1]}/{kind}")
        )
        return found

    def first_network(self, group=0):
        """A plain network with the weights of the first chain of a group."""
        model, chain = self.network(True), group * self.size.chains
        values = {n: value[chain] for n, value in self.starts.items()}
        model.set_weights(
            [values[f"{k}{i}"] for i in range(1, 1 + len(values) // 2) for k in "wb"]
        )
        return model

    @functools.cached_property
    def modes(self):
        """The energy near each start; near one of them if there is one mode."""
        count = 1 if self.problem.is_identifiable else self.chains
        positions = ({k: v[i] for k, v in self.starts.items()} for i in range(count))
        return [theory.Mode(self.problem, position) for position in positions]

    @functools.cached_property
    def stiffest(self):
        """The largest curvature of the energy at a start, in nats."""
        return max(mode.stiffness[-1] for mode in self.modes)

    def predict(self, position):
        """Predictions of draws, float64."""
        position = {k: np.asarray(v, "float32") for k, v in position.items()}
        found = self.problem.predict(position, self.problem.x_test)
        return keras.ops.convert_to_numpy(found).astype("float64")

    def of_outputs(self, outputs):
        """Predictions from a network's outputs."""
        outputs = np.asarray(outputs, "float64")
        if self.problem.task == "regression":
            return outputs[..., 0]
        if outputs.shape[-1] == 1:
            return np.concatenate([1.0 - outputs, outputs], axis=-1)
        return outputs
