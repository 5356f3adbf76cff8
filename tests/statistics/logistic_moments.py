"""Moments of a logistic regression from long runs of NUTS, and what made them.

`python tests/statistics/logistic_moments.py` runs blackjax in float64, 16 chains of
100,000 draws, and prints `MOMENTS`; it takes about two minutes on a CPU.
"""

import numpy as np

PRIOR_SCALE = 1.5
EXAMPLES = 40

_rng = np.random.default_rng(77)
FEATURES = np.column_stack([np.ones(EXAMPLES), _rng.normal(size=(EXAMPLES, 2))])
LABELS = (
    _rng.uniform(size=EXAMPLES) < 1.0 / (1.0 + np.exp(-FEATURES @ [0.8, 1.2, -0.6]))
).astype("float64")

# The comments are the largest standard errors.
MOMENTS = {
    "mean": [1.1286, 2.22734, -0.77251],  # 4.6e-04
    "covariance": [
        [0.20945, 0.12029, -0.05058],
        [0.12029, 0.43118, -0.06892],
        [-0.05058, -0.06892, 0.17886],
    ],  # 4.7e-04
    "positive": [0.48443, 0.47542, 0.51984],  # 4.1e-04
}


def main(chains=16, draws=100_000):
    """Prints the moments, and their standard errors."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import blackjax
    import jax.numpy as jnp

    def log_density(x):
        logits = FEATURES @ x
        fit = jnp.sum(LABELS * logits - jnp.logaddexp(0.0, logits))
        return fit - 0.5 * jnp.sum(x**2) / PRIOR_SCALE**2

    def one_chain(key):
        start, warm_up, sampling = jax.random.split(key, 3)
        first = jax.random.normal(start, (3,))
        adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
        (state, parameters), _ = adaptation.run(warm_up, first, num_steps=2000)
        kernel = blackjax.nuts(log_density, **parameters)

        def step(state, key):
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(sampling, draws))[1]

    keys = jax.random.split(jax.random.key(1), chains)
    x = np.array(jax.jit(jax.vmap(one_chain))(keys))
    mean = x.mean(axis=(0, 1))
    offset = x - mean
    by_chain = {
        "mean": x.mean(axis=1),
        "covariance": np.einsum("cdi,cdj->cij", offset, offset) / draws,
        "positive": (x > mean).mean(axis=1),
    }
    for name, values in by_chain.items():
        error = (values.std(axis=0) / (chains - 1) ** 0.5).max()
        print(f"{name!r}: {values.mean(axis=0).round(5).tolist()},  # {error:.1e}")


if __name__ == "__main__":
    main()
