"""Training loops of several libraries over one network: the processes of `peers.py`.

Run it as `python peer_loops.py LIBRARY`. It prints `{"ready": [...]}` or
`{"missing": ...}`. Then, for each line that it reads, it runs each of its loops once
over the batches, and prints the milliseconds of a step by loop.

The network is a perceptron 784-600-10. All libraries use the same batches of 100
examples. A step changes the weights in the fastest way of its library: jitted with
donated buffers in JAX, in place on PyTorch.
"""

import importlib.util
import json
import os
import sys
import warnings

import measuring
import numpy as np

WIDTHS, BATCH, SIZE, RATE = (784, 600, 10), 100, 10_000, 0.1
NEEDS = {"ours": "keras_mhmcmc", "blackjax": "blackjax"} | {
    "posteriors": "posteriors",
    "torch-sgld": "torch_sgld",
}


def batches(steps):
    """Inputs and labels of the batches, as arrays."""
    rng = np.random.default_rng(0)
    x = rng.random((steps, BATCH, WIDTHS[0]), dtype="float32")
    return x, rng.integers(0, WIDTHS[-1], (steps, BATCH))


def weights():
    """First values of the network: kernel and bias of each layer."""
    rng = np.random.default_rng(1)
    for inputs, outputs in zip(WIDTHS[:-1], WIDTHS[1:], strict=True):
        yield (rng.standard_normal((inputs, outputs)) / inputs**0.5).astype("float32")
        yield np.zeros(outputs, "float32")


def ours(steps):
    """Keras' SGD and our samplers in `fit`."""
    import workloads

    x, y = batches(steps)
    x, y = x.reshape(-1, WIDTHS[0]), y.reshape(-1)
    every = workloads.optimizers(BATCH)
    loops = {}
    for name, key in {"SGD": "SGD", "SGLD": "SGLD", "CSGLD": "CSGLD, 200 bins"}.items():
        model = workloads.network("mlp", every[key])

        def run(model=model):
            model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)

        loops[name] = run
    return loops


def blackjax(steps):
    """Steps jitted one by one, the key split within, with blackjax's kernels."""
    import blackjax
    import jax

    x, y = batches(steps)

    def log_likelihood(position, batch):
        inputs, labels = batch
        first, bias, last, end = position
        logits = jax.nn.relu(inputs @ first + bias) @ last + end
        values = jax.nn.log_softmax(logits)
        return values[np.arange(BATCH), labels].mean()

    gradient = jax.grad(log_likelihood)
    sgld = blackjax.sgld(gradient)
    # The posterior of SIZE examples, in units of one: rate times gradient of the mean.
    csgld = blackjax.csgld(log_likelihood, gradient, 1.0, 200, 0.02, 0.01)
    kernels = {
        "SGD": lambda key, position, batch: jax.tree.map(
            lambda p, g: p + RATE * g, position, gradient(position, batch)
        ),
        "SGLD": lambda key, position, batch: sgld.step(
            key, position, batch, RATE, 1.0 / SIZE
        ),
        "CSGLD": lambda key, state, batch: csgld.step(
            key, state, batch, RATE, 1e-3, 1.0 / SIZE
        ),
    }
    loops = {}
    for name, kernel in kernels.items():

        def step(key, state, inputs, labels, kernel=kernel):
            key, new = jax.random.split(key)
            return key, kernel(new, state, (inputs, labels))

        state = [jax.numpy.array(value) for value in weights()]
        if name == "CSGLD":
            state = csgld.init(state)
        step = jax.jit(step, donate_argnums=(0, 1))
        held = {"state": (jax.random.key(0), state)}

        def run(step=step, held=held):
            for inputs, labels in zip(x, y, strict=True):
                held["state"] = step(*held["state"], inputs, labels)
            jax.block_until_ready(held["state"])

        loops[name] = run
    return loops


def posteriors(steps):
    """posteriors' SGLD in place, and SGD with its way to take gradients."""
    # A remark on each of its classes, about a version of tensordict to come.
    warnings.simplefilter("ignore", FutureWarning)
    import posteriors
    import torch

    x, y = map(torch.as_tensor, batches(steps))

    def log_posterior(position, batch):
        inputs, labels = batch
        hidden = torch.relu(inputs @ position["0"] + position["1"])
        logits = hidden @ position["2"] + position["3"]
        return -torch.nn.functional.cross_entropy(logits, labels), logits

    def first():
        return {str(i): torch.tensor(value) for i, value in enumerate(weights())}

    position = first()

    def sgd():
        take = torch.func.grad_and_value(log_posterior, has_aux=True)
        with torch.no_grad():
            for batch in zip(x, y, strict=True):
                gradient, _ = take(position, batch)
                for name, value in position.items():
                    value.add_(gradient[name], alpha=RATE)

    build = posteriors.sgmcmc.sgld.build
    transform = build(log_posterior, lr=RATE, temperature=1.0 / SIZE)
    held = {"state": transform.init(first())}

    def sgld():
        for batch in zip(x, y, strict=True):
            held["state"], _ = transform.update(held["state"], batch, inplace=True)

    return {"SGD": sgd, "SGLD": sgld}


def torch_sgld(steps):
    """torch.optim.SGD, and torch-sgld's SGLD, which is derived from it."""
    import torch
    import torch_sgld

    x, y = map(torch.as_tensor, batches(steps))
    optimizers = {
        "SGD": lambda position: torch.optim.SGD(position, lr=RATE),
        "SGLD": lambda position: torch_sgld.SGLD(
            position, lr=RATE, temperature=1.0 / SIZE
        ),
    }
    loops = {}
    for name, make in optimizers.items():
        position = [torch.tensor(value, requires_grad=True) for value in weights()]

        optimizer = make(position)

        def run(position=position, optimizer=optimizer):
            first, bias, last, end = position
            for inputs, labels in zip(x, y, strict=True):
                logits = torch.relu(inputs @ first + bias) @ last + end
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(logits, labels).backward()
                optimizer.step()

        loops[name] = run
    return loops


LOOPS = {
    "ours": ours,
    "blackjax": blackjax,
    "posteriors": posteriors,
    "torch-sgld": torch_sgld,
}


def say(answer):
    """Prints an answer for `peers.py`."""
    print(json.dumps(answer), flush=True)


def main():
    """Answers until there is nothing more to read."""
    library, steps = sys.argv[1], int(sys.argv[2])
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if importlib.util.find_spec(NEEDS[library]) is None:
        say({"missing": NEEDS[library]})
        return
    loops = LOOPS[library](steps)
    for run in loops.values():
        run()  # compiles
    say({"ready": list(loops)})
    for _ in sys.stdin:
        times = measuring.alternate(
            {
                name: lambda run=run: measuring.seconds(run) / steps * 1e3
                for name, run in loops.items()
            },
            rounds=2,
            show=False,
        )
        say({name: sum(values) / 2 for name, values in times.items()})


if __name__ == "__main__":
    main()
