"""How far TunaMH moves for each example that it evaluates, beside a test on all data.

A logistic regression in 10 dimensions with a normal prior. Positions come from the
normal approximation of the posterior, and proposals from a random walk whose standard
deviation is a share of 2.4 / sqrt(d) posterior standard deviations, near the best one
for a test on all of the data. Each row has the mean acceptance, the mean number of
examples, and the efficiency: the accepted squared distance for each evaluated example,
in units of that of the best row of the test on all of the data. Everything is computed
in float64 with numpy: TunaMH's counts are drawn example by example.

    python examples/benchmarks/tuna.py                 # 10,000 rows, half a minute
    python examples/benchmarks/tuna.py --rows 100000 --proposals 300     # two minutes
"""

import argparse

import numpy as np

DIMENSION = 10
SHARES = (0.1, 0.25, 0.5, 1.0)
REACHES = (1.0, 3.0, 10.0)  # chi C M of a move of usual length


def problem(rows, rng):
    """Features, signs -1 for the label 1, and a Gaussian posterior: mean and factor."""
    x = rng.normal(size=(rows, DIMENSION))
    weights = 0.5 * rng.normal(size=DIMENSION)
    labels = rng.random(rows) < 1.0 / (1.0 + np.exp(-x @ weights))
    mean = np.zeros(DIMENSION)
    for _ in range(20):  # Newton's method
        p = 1.0 / (1.0 + np.exp(-x @ mean))
        precision = (x * (p * (1.0 - p))[:, None]).T @ x + np.eye(DIMENSION)
        mean = mean + np.linalg.solve(precision, x.T @ (labels - p) - mean)
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    return x, np.where(labels, -1.0, 1.0), mean, factor


def measure(rows, proposals, seed):
    """Rows (share, reach or None, acceptance, examples, squared distance)."""
    rng = np.random.default_rng(seed)
    x, signs, mean, factor = problem(rows, rng)
    bounds = np.sqrt(np.sum(np.square(x), axis=1))
    total = bounds.sum()
    deviation = np.sqrt(np.mean(np.sum(np.square(factor), axis=1)))

    def log_likelihoods(theta):
        return -np.logaddexp(0.0, signs * (x @ theta))

    for share in SHARES:
        rate = share * 2.4 / np.sqrt(DIMENSION) * deviation
        found = {reach: [] for reach in (None, *REACHES)}
        for _ in range(proposals):
            theta = mean + factor @ rng.normal(size=DIMENSION)
            proposal = theta + rate * rng.normal(size=DIMENSION)
            distance = np.linalg.norm(proposal - theta)
            change = log_likelihoods(theta) - log_likelihoods(proposal)
            prior = 0.5 * (theta @ theta - proposal @ proposal)
            ratios = {None: (prior - change.sum(), rows)}
            for reach in REACHES:
                chi = reach / (total * rate * np.sqrt(DIMENSION))
                limit = chi * total * distance
                counts = rng.poisson(
                    bounds * distance * limit + 0.5 * (change + bounds * distance)
                )
                angle = np.arctanh(change / (bounds * distance * (1.0 + 2.0 * limit)))
                size = (1.0 + limit) * total * distance
                ratios[reach] = prior - 2.0 * counts @ angle, size
            for reach, (log_ratio, size) in ratios.items():
                accepted = min(1.0, np.exp(log_ratio))
                found[reach].append((accepted, size, accepted * distance**2))
        for reach, values in found.items():
            yield (share, reach, *np.mean(values, axis=0))


def main(arguments=None):
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--proposals", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    results = list(measure(args.rows, args.proposals, args.seed))
    best = max(row[4] / row[3] for row in results if row[1] is None)
    print("| step | test | acceptance | examples | efficiency |\n|---|---|---|---|---|")
    for share, reach, acceptance, examples, squared in results:
        test = "all data" if reach is None else f"TunaMH, chi C M = {reach:g}"
        cells = f"{acceptance:.3f} | {examples:.0f} | {squared / examples / best:.2f}"
        print(f"| {share:g} | {test} | {cells} |")


if __name__ == "__main__":
    main()
