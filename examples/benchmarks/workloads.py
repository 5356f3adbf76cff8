"""The networks and the optimizers that the benchmarks run."""

import pathlib
import sys
from typing import NamedTuple

import keras
import numpy as np

import keras_mhmcmc as mh

SIZE = 10_000  # examples that the samplers are told of


class Workload(NamedTuple):
    """A network, the shape of its inputs, and how much of it is timed at a time."""

    widths: tuple | None  # of the layers; None for the residual network
    batch: int
    steps: int  # in a round


WORKLOADS = {
    "mlp": Workload((784, 600, 10), 100, 100),
    "resnet20": Workload(None, 128, 2),
    "large": Workload((784, 4620, 4620, 10), 100, 8),
    "small": Workload((20, 64, 32, 10), 100, 40),
    "tiny": Workload((20, 8, 10), 100, 3),  # to try the tools
}
# Settings of a sampler that is there already; left out where a step takes long.
VARIANTS = ("MHBT, random walk", "CSGLD, 10000 bins")


def perceptron(widths):
    """A network of dense layers with these widths, which gives probabilities."""
    features, *hidden, classes = widths
    return keras.Sequential(
        [
            keras.Input((features,)),
            *(keras.layers.Dense(width, "relu") for width in hidden),
            keras.layers.Dense(classes, "softmax"),
        ]
    )


def network(name, optimizer):
    """A compiled network of `WORKLOADS`."""
    widths = WORKLOADS[name].widths
    if widths is None:
        examples = str(pathlib.Path(__file__).parents[1])
        if examples not in sys.path:
            sys.path.append(examples)
        from cifar_resnet import resnet

        model = resnet((32, 32, 3), classes=10, width=16, blocks=3)
    else:
        model = perceptron(widths)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=widths is None)
    model.compile(optimizer=optimizer, loss=loss)
    return model


def data(name, steps):
    """Random inputs and labels of `steps` batches."""
    workload = WORKLOADS[name]
    rng = np.random.default_rng(0)
    count = steps * workload.batch
    shape = (32, 32, 3) if workload.widths is None else (workload.widths[0],)
    x = rng.random((count, *shape), dtype="float32")
    return x, rng.integers(0, 10, count)


def optimizers(batch_size=100, size=SIZE, seed=None):
    """One of each, with settings of the size of those of the papers' networks."""
    told = {"train_size": size, "seed": seed}
    sizes = {"batch_size": batch_size, **told}
    langevin = mh.proposals.Langevin()
    return {
        "SGD": keras.optimizers.SGD(0.1),
        "Adam": keras.optimizers.Adam(1e-3),
        "SGLD": mh.SGLD(0.1, **told),
        "PSGLD": mh.PSGLD(1e-3, **told),
        "SGHMC": mh.SGHMC(0.01, **told),
        "MHBT, random walk": mh.MHBT(1e-4, **sizes),
        "MHBT, Langevin": mh.MHBT(0.1, proposal=langevin, **sizes),
        "RSGLD": mh.RSGLD(0.1, warm_up=0, **sizes),
        "MINT": mh.MINT(0.1, **sizes),
        "CSGLD, 200 bins": contour(mh.CSGLD, 200, told),
        "CSGLD, 10000 bins": contour(mh.CSGLD, 10_000, told),
        "CSGHMC, 200 bins": contour(mh.CSGHMC, 200, told),
        "SGLD-SA": sparse(mh.SGLDSA, 0.1, told),
        "SGHMC-SA": sparse(mh.SGHMCSA, 0.01, told),
        "ESM": sparse(mh.ESM, 1e-3, told),
    }


def contour(sampler, partitions, told):
    """A contour sampler whose subregions reach over the energies of the run."""
    return sampler(
        0.1 if sampler is mh.CSGLD else 0.01,
        partition=mh.EnergyPartition(100.0, 30_000.0 / partitions, partitions),
        zeta=1.0,
        **told,
    )


def sparse(sampler, rate, told):
    """A spike-and-slab sampler of all kernels."""
    prior = mh.priors.SpikeSlab("kernel", v0=1e-3, v1=1.0)
    return sampler(rate, prior=prior, **told)
