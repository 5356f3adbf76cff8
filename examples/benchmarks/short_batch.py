"""What a short last mini-batch of an epoch does to Metropolis-Hastings.

MHBT with a random walk and T = N/m samples the mean of a normal distribution, on
shuffled epochs. Their last mini-batch is short, or is left out. The program prints the
variance of the samples over the variance of exp(-U/T). It needs only NumPy:

    python examples/benchmarks/short_batch.py
"""

import argparse

import numpy as np


def variance(examples, batch, is_last_kept, *, epochs, chains, seed=0):
    """Variance of the samples over that of the tempered posterior."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=examples)
    x -= x.mean()
    step = batch**-0.5  # the standard deviation of exp(-U/T)
    state, energy = step * rng.normal(size=chains), None
    total, count = 0.0, 0
    for epoch in range(epochs):
        # Each chain has an order of its own.
        order = rng.permuted(np.tile(np.arange(examples), (chains, 1)), axis=1)
        for start in range(0, examples, batch):
            rows = x[order[:, start : start + batch]]
            if rows.shape[1] < batch and not is_last_kept:
                continue
            point = state + step * rng.normal(size=chains)
            mean, square = rows.mean(axis=1), np.square(rows).mean(axis=1)
            new = batch * 0.5 * (square - 2 * point * mean + point**2)  # U/T
            if energy is None:
                state, energy = point, new
            accepted = np.log(rng.uniform(size=chains)) < energy - new
            state = np.where(accepted, point, state)
            energy = np.where(accepted, new, energy)
            if epoch >= epochs // 10:
                total, count = total + np.square(state).mean(), count + 1
    return total / count * batch


def main(argv=None):
    """Prints the table. Returns its rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few epochs")
    args = parser.parse_args(argv)
    size = (
        {"epochs": 20, "chains": 20} if args.quick else {"epochs": 400, "chains": 500}
    )
    batch, full, rows = 64, 10, []
    print("last of 64  kept   left away")
    for last in (1, 4, 8, 16, 32, 48, 57):
        kept, away = (
            variance(full * batch + last, batch, flag, **size) for flag in (True, False)
        )
        rows.append((last, kept, away))
        print(f"{last:10d}  {kept:5.2f}  {away:9.2f}", flush=True)
    return rows


if __name__ == "__main__":
    main()
