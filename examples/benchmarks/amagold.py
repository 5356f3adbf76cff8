"""What the test of `mh.AMAGOLD` mends, and which paths it accepts.

    python amagold.py --only law
    python amagold.py --only network
    python amagold.py --only cost

`law` is a linear regression of 400 examples with a normal posterior. It prints the
variance of the samples over the posterior's, for AMAGOLD and for SGHMC with the same
step. `network` fits scikit-learn's digits with a 64-16-10 network, and prints the share
of accepted paths for several learning rates and lengths of a path. `cost` compares the
time of an epoch with that of SGHMC.
"""

import argparse
import time
import warnings

import keras
import numpy as np

import keras_mhmcmc as mh

N, FEATURES, BATCH = 400, 2, 40
RATE, MOMENTUM, STEPS = 0.05, 0.8, 5
BURN_IN = 20  # epochs
BLOCKS = 20  # of epochs, whose means give the standard error


class Shuffled(keras.utils.PyDataset):
    """Mini-batches of equal size, in a new order in each epoch."""

    def __init__(self, x, y, size, seed):
        super().__init__()
        self.x, self.y, self.size = x, y, size
        self.rng = np.random.default_rng(seed)
        self.on_epoch_end()

    def __len__(self):
        return len(self.x) // self.size

    def __getitem__(self, index):
        rows = self.order[self.size * index : self.size * (index + 1)]
        return self.x[rows], self.y[rows]

    def on_epoch_end(self):
        self.order = self.rng.permutation(len(self.x))


def relative_variance(sampler, seed, epochs, **options):
    """Mean and standard error of the variance, over the posterior's, and the logs."""
    rng = np.random.default_rng(3)
    x, _ = np.linalg.qr(rng.normal(size=(N, FEATURES)))
    x = (x * N**0.5).astype("float32")
    y = (x @ rng.normal(size=FEATURES) + rng.normal(size=N)).astype("float32")
    precision = N + 100.0
    mean = x.T.astype("float64") @ y / precision
    start = keras.initializers.GlorotUniform(seed=seed)
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer=start)
    model = keras.Sequential([keras.Input((FEATURES,)), layer])
    options |= dict(momentum=MOMENTUM, prior=mh.priors.Gaussian(0.1), seed=seed)
    model.compile(sampler(RATE, train_size=N, **options), mh.losses.GaussianNLL(1.0))
    squares = []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch >= BURN_IN:
                (kernel,) = self.model.get_weights()
                squares.append(np.mean((kernel[:, 0] - mean) ** 2) * precision)

    batches = Shuffled(x, y[:, None], BATCH, seed)
    posterior = mh.PosteriorSamples(burn_in=BURN_IN * len(batches), max_samples=1)
    history = model.fit(
        batches, epochs=BURN_IN + epochs, verbose=0, callbacks=[posterior, Look()]
    )
    blocks = np.reshape(squares, (BLOCKS, -1)).mean(1)
    return blocks.mean(), blocks.std(ddof=1) / BLOCKS**0.5, history.history


def law(seeds, epochs):
    print("| seed | AMAGOLD | accepted | SGHMC |")
    print("|---|---|---|---|")
    for seed in range(seeds):
        options = dict(steps_per_test=STEPS, warm_up=BURN_IN * N // BATCH)
        ours = relative_variance(mh.AMAGOLD, seed, epochs, **options)
        other = relative_variance(mh.SGHMC, seed, epochs)
        accepted = np.mean(ours[2]["acceptance"][BURN_IN:])
        print(
            f"| {seed} | {ours[0]:.3f} ± {ours[1]:.3f} | {accepted:.2f} "
            f"| {other[0]:.3f} ± {other[1]:.3f} |",
            flush=True,
        )


def network(epochs, seeds):
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = (x[:1440] / 16.0).astype("float32"), y[:1440]
    print("| learning rate | steps of a path | accepted, after the warm-up |")
    print("|---|---|---|")
    for rate in (0.003, 0.01, 0.03):
        for steps in (1, 5, 15):
            shares = []
            for seed in range(seeds):
                model = keras.Sequential(
                    [
                        keras.Input((64,)),
                        keras.layers.Dense(16, "tanh"),
                        keras.layers.Dense(10),
                    ]
                )
                warm_up = 15 * (epochs // 2)
                optimizer = mh.AMAGOLD(
                    rate,
                    train_size=len(x),
                    steps_per_test=steps,
                    warm_up=warm_up,
                    prior=mh.priors.Gaussian(1.0),
                    seed=seed,
                )
                loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
                model.compile(optimizer, loss)
                history = model.fit(
                    Shuffled(x, y, 96, seed),
                    epochs=epochs,
                    verbose=0,
                    callbacks=[mh.PosteriorSamples(max_samples=1)],
                )
                shares.append(np.nanmean(history.history["acceptance"][epochs // 2 :]))
            text = ", ".join(f"{share:.2f}" for share in shares)
            print(f"| {rate} | {steps} | {text} |", flush=True)


def cost(rounds):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10_000, 784)).astype("float32"), rng.integers(0, 10, 10_000)
    models = {}
    for sampler, options in ((mh.SGHMC, {}), (mh.AMAGOLD, dict(warm_up=0))):
        layers = [keras.Input((784,)), keras.layers.Dense(600, "relu")]
        model = keras.Sequential([*layers, keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(sampler(1e-3, train_size=len(x), seed=0, **options), loss)
        models[sampler.__name__] = model
    seconds = {name: [] for name in (*models, "pass")}
    for number in range(rounds + 1):  # the first one compiles
        for name, model in models.items():
            callback = mh.PosteriorSamples(max_samples=2)
            begin = time.perf_counter()
            model.fit(x, y, batch_size=100, epochs=2, verbose=0, callbacks=[callback])
            if number:
                seconds[name].append((time.perf_counter() - begin) / 2)
        begin = time.perf_counter()
        models["SGHMC"].evaluate(x, y, batch_size=512, verbose=0)
        if number:
            seconds["pass"].append(time.perf_counter() - begin)
    seconds = {name: np.array(values) for name, values in seconds.items()}
    typical = {name: np.median(values) for name, values in seconds.items()}
    shares = (seconds["AMAGOLD"] - seconds["pass"]) / seconds["SGHMC"]
    low, middle, high = np.quantile(shares, (0.25, 0.5, 0.75))
    print(
        f"{keras.backend.backend()}: an epoch of SGHMC {typical['SGHMC']:.3f} s, of "
        f"AMAGOLD {typical['AMAGOLD']:.3f} s, a pass {typical['pass']:.3f} s; AMAGOLD "
        f"less the pass over SGHMC: median {middle:.2f} of {len(shares)} rounds, "
        f"quartiles {low:.2f} and {high:.2f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("law", "network", "cost"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5000, help="of the law")
    parser.add_argument("--network-epochs", type=int, default=200)
    args = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # of chains that stand still
    if args.only in (None, "law"):
        law(args.seeds, args.epochs)
    if args.only in (None, "network"):
        network(args.network_epochs, args.seeds)
    if args.only in (None, "cost"):
        cost(9)


if __name__ == "__main__":
    main()
