"""Table 2 of the CSGLD paper: a residual network on CIFAR, contour samplers and others.

Momentum SGD, SGHMC and CSGHMC train ResNet20 (He, Zhang, Ren and Sun, 2016), each with
a fixed learning rate and temperature, and each with falling ones ("sa", simulated
annealing). The example prints the test accuracy of the best single model (BPE) and of
the weighted average of the models (BMA), beside the paper's numbers (Deng, Lin and
Liang, 2020).

    python examples/cifar_resnet.py --quick
    python examples/cifar_resnet.py --dataset cifar10 --epochs 1000 --batch-size 1000

The second command is the paper's run, and needs a GPU. `--data-dir` names a folder with
images that `mh.datasets.load` can read. With fewer `--epochs` the annealing goes to the
same rate and temperature in less time.

With the paper's zeta of a million, one model gets nearly all the weight, because the
paper's weight is theta(J) to the power zeta. The weight here is theta(J), as in the
authors' later code. BMA is therefore not an average over the posterior.
"""

import argparse
import json
import logging
import os
import time
from typing import NamedTuple

os.environ.setdefault("KERAS_BACKEND", "jax")

import cifar_resnet_data as data
import keras
import numpy as np
from keras import layers
from keras import ops

import keras_mhmcmc as mh

# TensorFlow would remark on each ensemble that it compiles.
logging.getLogger("tensorflow").setLevel(logging.ERROR)

# The paper's settings, where its sums over 50,000 images are means here: its rates are
# 2e-7 and 2e-6, its weight decay 25.
RATE, RATE_OF_ANNEALING = 0.01, 0.1
MOMENTUM = 0.9
TEMPERATURE = 0.01
DECAY = 5e-4  # of the weights, per image
FALL = 1.01  # of the rate and the temperature, per epoch of 1000
HELD = 0.4  # share of the epochs before the rate falls
PARTITIONS = 200


class Task(NamedTuple):
    """Width of a subregion and zeta, per training image, and the paper's results."""

    energy_gap: float
    zeta: float
    reported: dict  # method -> BPE, BMA in %


TASKS = {
    "cifar10": Task(
        1000 / 50_000,
        1e6 / 50_000,
        {
            "M-SGD": (90.02, 92.03),
            "SGHMC": (90.01, 91.98),
            "CSGHMC": (90.87, 92.85),
            "saM-SGD": (93.83, 94.25),
            "saSGHMC": (93.80, 94.24),
            "saCSGHMC": (94.06, 94.33),
        },
    ),
    "cifar100": Task(
        5000 / 50_000,
        3e6 / 50_000,
        {
            "M-SGD": (61.41, 67.04),
            "SGHMC": (61.46, 66.43),
            "CSGHMC": (63.97, 68.94),
            "saM-SGD": (69.18, 71.83),
            "saSGHMC": (69.24, 71.98),
            "saCSGHMC": (70.18, 72.67),
        },
    ),
}
METHODS = tuple(TASKS["cifar10"].reported)
TASKS["synthetic"] = Task(0.02, 20.0, {})


def resnet(shape, classes, width, blocks):
    """A residual network of 6 * blocks + 2 layers: ResNet20 has 3, and width 16."""

    def convolution(x, filters, strides=1):
        x = layers.Conv2D(
            filters,
            3,
            strides,
            padding="same",
            use_bias=False,
            kernel_initializer="he_normal",
        )(x)
        return layers.BatchNormalization(momentum=0.9)(x)

    inputs = keras.Input(shape)
    x = layers.ReLU()(convolution(inputs, width))
    for stage in range(3):
        for block in range(blocks):
            strides = 2 if stage > 0 and block == 0 else 1
            y = layers.ReLU()(convolution(x, width * 2**stage, strides))
            y = convolution(y, width * 2**stage)
            if strides == 2:  # a shortcut without weights: the new channels are 0
                added = width * 2**stage - x.shape[-1]
                x = ops.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), (0, added)))
            x = layers.ReLU()(x + y)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes)(x))


class Annealed(keras.optimizers.schedules.LearningRateSchedule):
    """`initial`, which from step `start` on falls by `factor` at each epoch."""

    def __init__(self, initial, start, epoch_steps, factor):
        super().__init__()
        self.initial = initial
        self.start = start
        self.epoch_steps = epoch_steps
        self.factor = factor

    def __call__(self, step):
        epochs = ops.maximum(step - self.start, 0) // self.epoch_steps
        return self.initial * ops.power(self.factor, -ops.cast(epochs, "float32"))

    def get_config(self):
        return {
            "initial": self.initial,
            "start": self.start,
            "epoch_steps": self.epoch_steps,
            "factor": self.factor,
        }


def make_optimizer(method, n, task, epochs, epoch_steps, args):
    """The method's optimizer for `n` training images."""
    rate, temperature = RATE, TEMPERATURE
    if method.startswith("sa"):
        # A shorter run falls faster, and as far.
        factor = FALL ** (1000 / epochs)
        start = int(HELD * epochs) * epoch_steps
        rate = Annealed(RATE_OF_ANNEALING, start, epoch_steps, factor)
        temperature = Annealed(TEMPERATURE, 0, epoch_steps, factor)
    options = {
        "learning_rate": rate,
        "momentum": MOMENTUM,
        "train_size": n,
        "prior": mh.priors.Gaussian((DECAY * n) ** -0.5),
        "seed": args.seed,
    }
    kind = method.removeprefix("sa")
    if kind == "M-SGD":  # SGHMC without noise is SGD with momentum
        return mh.SGHMC(temperature=0.0, **options)
    if kind == "SGHMC":
        return mh.SGHMC(temperature=temperature, **options)
    field = {"random_field": "zeta", "rho": 1.0}  # eq. (57)
    if args.random_field == "one":
        field = {"random_field": "one"}
    width = task.energy_gap * n
    return mh.CSGHMC(
        temperature=temperature,
        partition=mh.EnergyPartition(width, width, PARTITIONS),
        zeta=task.zeta * n,
        # Flat, so that the multiplier is 1 at first. The default falls by a third and
        # more between the highest subregions, where a start would be driven uphill.
        masses=np.full(PARTITIONS, 1 / PARTITIONS),
        step_size=mh.schedules.RobbinsMonro(10.0, 0.75, 1000.0, None),
        # theta to the power zeta, the exact weight, would leave one model.
        weight_power=1.0,
        **field,
        **options,
    )


class Progress(keras.callbacks.Callback):
    """Five lines for each method, with the time left."""

    def __init__(self, epochs):
        super().__init__()
        self.label = ""
        self._epochs = epochs  # of all methods together
        self._done = 0
        self._begin = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self._done += 1
        if (epoch + 1) % max(self.params["epochs"] // 5, 1):
            return
        spent = time.perf_counter() - self._begin
        left = spent / self._done * (self._epochs - self._done)
        shown = ("loss", "accuracy", "energy", "partition", "multiplier")
        values = [f"{name} {logs[name]:.3g}" for name in shown if name in logs]
        print(
            f"{self.label}: epoch {epoch + 1} of {self.params['epochs']}: "
            f"{', '.join(values)}; {spent:.0f} s spent, about {left:.0f} s left",
            flush=True,
        )


def run(method, train, test, sizes, args, progress):
    """A dict of one method: BPE and BMA in %, and the weights of its models."""
    (x, y), (x_test, y_test) = train, test
    keras.utils.set_random_seed(args.seed)  # the same first weights for all
    batches = data.Batches(x, y, sizes["batch_size"], args.seed)
    classes = int(y.max()) + 1
    model = resnet(x.shape[1:], classes, sizes["width"], sizes["blocks"])
    epochs, steps = sizes["epochs"], len(batches)
    task = TASKS[args.dataset]
    model.compile(
        optimizer=make_optimizer(method, len(x), task, epochs, steps, args),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    # In the second half, at most 50 models.
    posterior = mh.PosteriorSamples(
        burn_in=epochs // 2 * steps, every=max(epochs // 100, 1) * steps
    )
    progress.label = method
    begin = time.perf_counter()
    model.fit(batches, epochs=epochs, callbacks=[posterior, progress], verbose=0)
    seconds = time.perf_counter() - begin
    members = posterior.ensemble(model).predict_members(x_test, batch_size=500)
    averaged = np.average(members, axis=0, weights=posterior.weights)
    return {
        "method": method,
        "bpe": max(accuracy(member, y_test) for member in members),
        "bma": accuracy(averaged, y_test),
        "last": accuracy(members[-1], y_test),
        "models": len(posterior),
        "ess": posterior.weight_ess,
        "seconds": seconds,
    }


def accuracy(probabilities, labels):
    """Share of correct labels in %."""
    return 100.0 * mh.metrics.accuracy(probabilities, labels)


def as_text(rows, reported):
    """A line for each method."""
    head = ["method", "last", "BPE", "BMA", "paper BPE", "BMA", "models", "weights"]
    lines = [[*head, "seconds"]]
    for row in rows:
        paper = [f"{value:.2f}" for value in reported.get(row["method"], ())]
        numbers = [f"{row[key]:.2f}" for key in ("last", "bpe", "bma")]
        lines.append([row["method"], *numbers, *(paper or ["—", "—"])])
        lines[-1] += [str(row["models"]), f"{row['ess']:.1f}", f"{row['seconds']:.0f}"]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    )


LEGEND = """\
Test accuracy in %.
last     of the last model
BPE      of the best model; the choice is made on the test images, as in the paper, so
         that it flatters all methods
BMA      of the weighted mean probability of the models, which are kept in the second
         half of the epochs
weights  effective sample size of the importance weights: at most the models"""


def main(argv=None):
    """Runs the comparison. Returns a dict for each method."""
    args = parse(argv)
    sizes = {key: getattr(args, key) for key in DEFAULT}
    sets = data.load(args.dataset, args.data_dir)
    train, test = data.normalized(*sets, args.examples, args.seed)
    sizes["batch_size"] = min(sizes["batch_size"], len(train[0]))
    print(
        f"{args.dataset}: {len(train[0])} images to train on, {len(test[0])} to test "
        f"on; {sizes}. Keras on {keras.backend.backend()}",
        flush=True,
    )
    progress = Progress(len(args.methods) * args.epochs)
    rows = [run(name, train, test, sizes, args, progress) for name in args.methods]
    print(f"\n{as_text(rows, TASKS[args.dataset].reported)}\n\n{LEGEND}")
    if args.output is not None:
        os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
        with open(args.output, "w") as file:
            json.dump(rows, file, indent=1)
        print(f"saved {args.output}")
    return rows


# The paper's, and those of a quick run.
DEFAULT = {"epochs": 1000, "batch_size": 1000, "width": 16, "blocks": 3}
QUICK = {"epochs": 6, "batch_size": 64, "width": 4, "blocks": 1}


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dataset", choices=list(TASKS), help="cifar10, or synthetic with --quick"
    )
    parser.add_argument("--data-dir", help="folder with <dataset>.npz; or download")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--examples", type=at_least_one, help="training images")
    parser.add_argument("--epochs", type=at_least_one, help="1000, or 6")
    parser.add_argument("--batch-size", type=at_least_one, help="1000, or 64")
    parser.add_argument("--width", type=at_least_one, help="first channels: 16, or 4")
    parser.add_argument("--blocks", type=at_least_one, help="in each stage: 3, or 1")
    parser.add_argument(
        "--random-field",
        choices=["zeta", "one"],
        default="zeta",
        help="eq. (57) with rho = 1, or the later form with theta to the power one",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a small network on synthetic images"
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights and noise")
    parser.add_argument("--output", help="JSON file for the results")
    args = parser.parse_args(argv)
    if args.dataset is None:
        args.dataset = "synthetic" if args.quick else "cifar10"
    for key, value in (QUICK if args.quick else DEFAULT).items():
        if getattr(args, key) is None:
            setattr(args, key, value)
    return args


def at_least_one(text):
    """A positive integer of the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1. Received: {text}")
    return number


if __name__ == "__main__":
    main()
