"""The samplers of `examples/fidelity.py`: their rates, their runs, what is predicted.

A sampler is a name in `SAMPLERS`. Its rate comes from `rate_of`, a rule that does not
know the reference. `predicted` says what closed forms of `fidelity_theory.py` expect.
"""

import math
from typing import NamedTuple

import fidelity_report as report
import fidelity_theory as theory
import keras
import numpy as np
import reference_problems

import keras_mhmcmc as mh

MOMENTUM = 0.9
CONTROLLED = "SGLD, control variates"
# Where a sampler needs more than a network has: a bound, a Taylor polynomial, one mode.
ONLY = {
    "TunaMH": ("logistic",),
    "SMH": ("logistic",),
    CONTROLLED: ("logistic", "softmax"),
}
PATH = 10  # steps of a path of AMAGOLD


class Run(NamedTuple):
    """Predictions (chain, draw, ...), weights (chain, draw), and what they cost."""

    predictions: np.ndarray
    weights: np.ndarray
    passes: float  # evaluations of an example in a chain, over N
    temperature: float = 1.0
    acceptance: float | None = None


def rate_of(name, setup):
    """The learning rate of a sampler: a rule that does not know the reference.

    - SGLD, CSGLD: eta L = 0.5 in the stiffest direction, a quarter of the edge of
      stability. PSGLD: the same for the curvature that its steps see.
    - SGHMC with both integrators, SGNHT, CSGHMC, AMAGOLD: 1 - momentum times as much,
      the same speed.
    - A random walk, also with Barker's test: the step that a Gaussian accepts with
      0.234 by the test of Metropolis. TunaMH: half of it.
    - A Langevin proposal, also a reversible one: the rate that a Gaussian accepts with
      0.574.
    - SGMCLMC: noise turns the velocity by 0.3 in a step, whatever the posterior is.
    - The default RSGLD, which adapts its rate: half the edge of stability.
    """
    sgld = theory.SPEED * setup.n / setup.stiffest
    if name == "PSGLD":
        seen = max(
            theory.preconditioned_stiffness(mode, factors_of(mode, setup))
            for mode in setup.modes
        )
        return theory.SPEED * setup.n / seen
    if name in ("SGLD", CONTROLLED, "CSGLD", "SWAG"):
        return sgld
    if name in ("SGHMC", "SGHMC, BAOAB", "SGNHT", "CSGHMC", "AMAGOLD"):
        return (1.0 - MOMENTUM) * sgld
    if name == "SGMCLMC":
        return 0.3
    if name == "RSGLD":
        return setup.n / setup.stiffest
    if name in ("MHBT, random walk", "TunaMH", "Barker's test"):
        warm = temperature_of(name, setup)
        rates = [theory.walk_rate(mode.stiffness, warm) for mode in setup.modes]
        return min(rates) * (0.5 if name == "TunaMH" else 1.0)
    if name in ("MHBT, Langevin", "MINT", "RSGLD, normalized", "MHBT, all data"):
        return min(theory.langevin_rate(m.stiffness, setup.n) for m in setup.modes)
    # HMC and MCLMC find their own, SMH's is in units of the posterior, and the
    # baselines have none.
    return None


def factors_of(mode, setup):
    """PSGLD's mean factors of the gradient."""
    return theory.preconditioner(mode, setup.size.batch_size)


def predicted(name, setup):
    """The spread of predictions over the posterior's, or None.

    None if the posterior is far from a Gaussian, or if there is no closed form.
    """
    if not setup.problem.is_identifiable:
        return None
    mode, m = setup.modes[0], setup.size.batch_size
    rate, warm = rate_of(name, setup), temperature_of(name, setup)
    if name in ("SGLD", "CSGLD"):
        covariance = theory.overdamped(mode, rate, m)
    elif name == CONTROLLED:  # at the mode a gradient has no noise
        covariance = theory.overdamped(mode, rate, setup.n)
    elif name == "PSGLD":
        covariance = theory.overdamped(mode, rate, m, factors_of(mode, setup))
    elif name in ("SGHMC", "CSGHMC"):
        covariance = theory.with_momentum(mode, rate, m, MOMENTUM)
    elif name == "SGNHT":
        friction = theory.thermostat(mode, rate, m, MOMENTUM)
        covariance = theory.with_momentum(mode, rate, m, MOMENTUM, friction)
    elif name in ("AMAGOLD", "HMC", "MHBT, all data", "TunaMH", "SMH"):
        return 1.0
    elif name == "HMC, T = N/m":
        covariance = warm * mode.covariance
    elif name.startswith(("MHBT", "MINT", "RSGLD, ")):
        covariance = theory.on_batches(mode, warm, m)
    else:
        return None
    if covariance is None:
        return None
    return theory.spread(mode, covariance) / theory.spread(mode, mode.covariance)


def temperature_of(name, setup):
    """The temperature of a sampler."""
    n, m = setup.n, setup.size.batch_size
    if name == "RSGLD":
        return n / (2.0 * m**0.5)
    if name == "MINT":
        return n / m**0.99
    tempered = ("MHBT, random walk", "MHBT, Langevin", "RSGLD, normalized")
    return n / m if name in (*tempered, "HMC, T = N/m") else 1.0


def kernel_of(name, setup):
    """The kernel, steps, batch size and passes over the data of a step."""
    rate, warm = rate_of(name, setup), temperature_of(name, setup)
    size, langevin = setup.size, mh.proposals.Langevin()
    share = size.batch_size / setup.n
    on_batches = (size.steps, size.batch_size, share)
    pilot = {"pilot_steps": min(1000, size.steps // 4)}
    if name in ("HMC", "HMC, T = N/m"):
        hmc = mh.kernels.hmc(
            leapfrog_steps=size.leapfrog, warm_up=size.paths // 3, temperature=warm
        )
        return hmc, size.paths, None, size.leapfrog + 1.0
    if name == "MCLMC":
        steps = size.steps // 4
        return mh.kernels.mclmc(warm_up=steps // 4), steps, None, 1.0
    if name == "AMAGOLD":
        amagold = mh.kernels.amagold(rate, momentum=MOMENTUM, steps_per_test=PATH)
        return amagold, size.steps // PATH, size.batch_size, PATH * share + 1.0
    if name == "TunaMH":
        rows = np.c_[setup.problem.data["x"], np.ones(setup.n)]
        bounds = mh.bounds.logistic_regression(rows)
        tuna = mh.kernels.tuna(rate, bounds=bounds, block_size=1024)
        return tuna, size.steps // 8, None, None
    if name == "SMH":
        rows = np.c_[np.ones(setup.n), setup.problem.data["x"]]  # "b1" before "w1"
        expansion = mh.expansions.logistic_regression(rows, setup.problem.data["y"])
        return mh.kernels.smh(expansion), size.steps // 2, None, None
    if name == "Barker's test":
        return mh.kernels.barker(rate, block_size=128), size.steps // 2, None, None
    if name == CONTROLLED:
        return mh.kernels.sgld(rate), size.steps, size.batch_size, 2.0 * share
    if name == "MHBT, all data":
        return mh.kernels.mhbt(rate, proposal=langevin), size.steps // 2, None, 1.0
    kernel = {
        "SGLD": lambda: mh.kernels.sgld(rate),
        "PSGLD": lambda: mh.kernels.psgld(rate),
        "SGHMC": lambda: mh.kernels.sghmc(rate, momentum=MOMENTUM),
        "SGHMC, BAOAB": lambda: mh.kernels.sghmc(
            rate, momentum=MOMENTUM, integrator="baoab"
        ),
        "SGNHT": lambda: mh.kernels.sgnht(rate, momentum=MOMENTUM),
        "SGMCLMC": lambda: mh.kernels.sgmclmc(rate, warm_up=size.steps // 4),
        "CSGLD": lambda: mh.kernels.csgld(rate, **pilot),
        "CSGHMC": lambda: mh.kernels.csghmc(rate, momentum=MOMENTUM, **pilot),
        "MHBT, random walk": lambda: mh.kernels.mhbt(rate),
        "MHBT, Langevin": lambda: mh.kernels.mhbt(rate, proposal=langevin),
        "MINT": lambda: mh.kernels.mint(rate),
        "RSGLD, normalized": lambda: mh.kernels.rsgld(
            rate,
            beta=1.0,
            beta_adaptation=None,
            noise_temperature=warm,
            normalized=True,
        ),
    }[name]()
    return kernel, *on_batches


def by_kernel(name, setup):
    """A run of `mh.sample`."""
    kernel, steps, batch_size, passes = kernel_of(name, setup)
    burn_in = steps // 2 if name.startswith("HMC") else steps // 4
    draws = mh.sample(
        kernel,
        setup.starts,
        log_likelihood=setup.problem.log_likelihood,
        log_prior=reference_problems.log_prior,
        data=setup.problem.data,
        batch_size=batch_size,
        num_steps=steps,
        burn_in=burn_in,
        every=max((steps - burn_in) // setup.size.draws, 1),
        num_chains=setup.chains,
        seed=setup.seed,
        progress=False,
        control_variates=setup.first_start() if name == CONTROLLED else None,
    )
    if passes is None:  # these kernels evaluate their examples at two positions
        passes = 2.0 * draws.info["batch_size"].mean() / setup.n
    accepted = draws.info.get("acceptance")
    predictions, k = setup.predict(draws.position), setup.size.chains
    return [
        Run(
            predictions[first : first + k],
            draws.weights[first : first + k],
            steps * passes,
            temperature_of(name, setup),
            None if accepted is None else float(accepted[first : first + k].mean()),
        )
        for first in range(0, setup.chains, k)
    ]


def by_default_rsgld(name, setup):
    """RSGLD with its defaults, in `fit`, from random weights."""
    size = setup.size
    chains = mh.ParallelChains(setup.network(False), setup.chains, setup.seed)
    optimizer = mh.RSGLD(
        rate_of(name, setup),
        train_size=setup.n,
        batch_size=size.batch_size,
        prior=mh.priors.Gaussian(1.0),
        seed=setup.seed,
    )
    chains.compile(optimizer, setup.loss())
    epoch = math.ceil(setup.n / size.batch_size)
    epochs = max(min(size.steps, 2000) // epoch, 1)
    burn_in = epochs * epoch // 4
    every = max((epochs * epoch - burn_in) // size.draws, 1)
    posterior = mh.PosteriorSamples(burn_in=burn_in, every=every)
    x, y = setup.problem.data["x"], setup.targets()
    history = chains.fit(
        x, y, size.batch_size, epochs, verbose=0, callbacks=[posterior]
    )
    values = posterior.to_arviz().posterior
    position = {}
    for weight in setup.problem.shapes:
        kind = "kernel" if weight[0] == "w" else "bias"
        (variable,) = (
            name
            for name in values.data_vars
            if f"layer{weight[1]}" in name and name.endswith(kind)
        )
        position[weight] = np.asarray(values[variable])
    predictions, k = setup.predict(position), size.chains
    accepted = float(np.mean(history.history["acceptance"][-1]))
    return [
        Run(
            predictions[first : first + k],
            np.ones((k, predictions.shape[1])),
            float(epochs),
            temperature_of(name, setup),
            accepted,
        )
        for first in range(0, setup.chains, k)
    ]


def by_deep_ensemble(name, setup):
    """The networks of each group as a deep ensemble."""
    ensemble = mh.deep_ensemble(setup.trained)
    k, passes = setup.size.chains, float(setup.size.training)
    members = members_of(ensemble, setup)
    return [
        Run(members[first : first + k], np.ones((k, 1)), passes)
        for first in range(0, setup.chains, k)
    ]


def by_swag(name, setup):
    """SWAG from the first network of each group, with SGD at the rate of SGLD."""
    size, found = setup.size, []
    epochs = max(min(size.training // 5, 200), 50)
    for group in range(size.groups):
        model = setup.first_network(group)
        posterior = mh.PosteriorSamples(burn_in=100)
        model.compile(keras.optimizers.SGD(rate_of(name, setup)), setup.loss())
        x, y = setup.problem.data["x"], setup.targets()
        model.fit(x, y, size.batch_size, epochs, verbose=0, callbacks=[posterior])
        ensemble = mh.swag(posterior, model, members=100, seed=group)
        passes = float(size.training + epochs)
        found.append(Run(members_of(ensemble, setup), np.ones((100, 1)), passes))
    return found


def by_laplace(name, setup):
    """The Laplace posterior of the last layer of the first network of each group."""
    is_regression = setup.problem.task == "regression"
    found = []
    for group in range(setup.size.groups):
        ensemble = mh.last_layer_laplace(
            setup.first_network(group),
            setup.problem.data["x"],
            setup.targets(),
            prior=mh.priors.Gaussian(1.0),
            noise_std=reference_problems.NOISE_STD if is_regression else None,
            members=200,
            seed=group,
        )
        passes = float(setup.size.training)
        found.append(Run(members_of(ensemble, setup), np.ones((200, 1)), passes))
    return found


def members_of(ensemble, setup):
    """Predictions of the members, (member, 1, ...)."""
    members = ensemble.predict_members(setup.problem.x_test)
    return setup.of_outputs(keras.ops.convert_to_numpy(members))[:, None]


OTHERS = {
    "deep ensemble": by_deep_ensemble,
    "SWAG": by_swag,
    "last-layer Laplace": by_laplace,
    "RSGLD": by_default_rsgld,
}
SAMPLERS = {name: OTHERS.get(name, by_kernel) for name in report.ORDER}
