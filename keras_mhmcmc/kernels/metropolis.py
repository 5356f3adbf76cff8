"""Build the kernels for `mh.sample` that accept or reject: MHBT, MINT and RSGLD."""

from keras_mhmcmc import proposals
from keras_mhmcmc.algorithms.beta_adaptation import BetaAdaptation
from keras_mhmcmc.algorithms.metropolis import Metropolis
from keras_mhmcmc.algorithms.tempering import checked_alpha
from keras_mhmcmc.proposals import checked_proposal
from keras_mhmcmc.samplers.base import checked_learning_rate
from keras_mhmcmc.schedules import Schedule


def mhbt(
    learning_rate: float | Schedule,
    *,
    proposal: proposals.Proposal | None = None,
    temperature: float | Schedule | None = None,
    refresh_probability: float = 0.0,
) -> Metropolis:
    """Return mini-batch Metropolis-Hastings (MHBT), a kernel for `mh.sample`.

    The kernel samples exp(-U/T), approximately on mini-batches. The energy U in nats is
    minus the log density. With `log_density`, or if a batch is all of the data, it is
    exact: the Metropolis-Hastings algorithm at the temperature T. Each step draws its
    mini-batch at random, and position and batch I together have exactly the density
    exp(-U_I/T).

    Args:
        learning_rate: step of the proposal: the standard deviation of a `RandomWalk`,
            otherwise as in `mh.SGLD`. A number of at least 0, or a schedule.
        proposal: one of `mh.proposals`. None is `RandomWalk()`.
        temperature: T, greater than 0, or a schedule. None is 1 with `log_density`,
            and N/m with data: energies of two batches are then compared at the weight
            of one batch. In the paper N/T is c_n, and the bias falls with it. At the
            default the draws are wider than exp(-U/T): on a logistic regression
            (N = 565, m = 113) their variance was 4.2 times as large in the stiffest
            directions (`examples/benchmarks/laws.py --only metropolis`).
        refresh_probability: probability of a refresh, in [0, 1), for a reversible
            proposal. A refresh proposes the position of the state with the next
            mini-batch, and accepts by the energies alone. The paper has 0.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.mhbt(0.5, proposal=mh.proposals.RandomWalk())

    Reference: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with
    reversible SGLD proposal", algorithm 1.
    """
    proposal = checked_proposal(proposal, proposals.RandomWalk())
    return Metropolis(
        checked_learning_rate(learning_rate),
        temperature,
        proposal,
        refresh_probability=refresh_probability,
    )


def mint(
    learning_rate: float | Schedule,
    *,
    alpha: float = 0.99,
    proposal: proposals.Proposal | None = None,
    refresh_probability: float = 0.0,
) -> Metropolis:
    """Return mini-batch tempered MCMC, MHBT at T = N / m^alpha, for `mh.sample`.

    The kernel samples exp(-U/T) approximately. The energy U in nats is minus the log
    density. The kernel needs data.

    Args:
        learning_rate: step of the proposal, as in `mhbt`.
        alpha: in (0, 1]. A smaller alpha gives a higher temperature and a smaller bias;
            0.5 is c_n = sqrt(m). Defaults to 0.99. At the default the draws are wider
            than exp(-U/T): on the logistic regression of `mhbt` their variance was 4.4
            times as large in the stiffest directions.
        proposal: one of `mh.proposals`. None is `Langevin()`.
        refresh_probability: probability of a refresh, in [0, 1), for a reversible
            proposal. A refresh proposes the position of the state with the next
            mini-batch, and accepts by the energies alone. The paper has 0.

    Raises:
        ValueError: an argument is outside its range, or there is no data.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.mint(0.1, alpha=0.99)

    Reference: Li and Wong (2017), "Mini-batch tempered MCMC", algorithm 1.
    """
    proposal = checked_proposal(proposal, proposals.Langevin())
    rate = checked_learning_rate(learning_rate)
    return Metropolis(
        rate,
        None,
        proposal,
        checked_alpha(alpha),
        refresh_probability=refresh_probability,
    )


def rsgld(
    learning_rate: float | Schedule,
    *,
    temperature: float | Schedule | None = None,
    forward_probability: float = 0.5,
    refresh_probability: float = 0.0,
    beta: float | str = "auto",
    beta_adaptation: str | None = "replay",
    noise_temperature: float | None = None,
    normalized: bool = False,
) -> Metropolis:
    """Return Metropolis-Hastings with reversible SGLD proposals, for `mh.sample`.

    With `normalized=True` and a fixed beta the kernel samples exp(-U/T), approximately
    on mini-batches. The energy U in nats is minus the log density. With `log_density`,
    or if a batch is all of the data, it is exact. The defaults, the paper's ratio and
    noise, make the chain nearly an optimizer: `mh.RSGLD` has the figures.

    Args:
        learning_rate: epsilon, as in `mh.RSGLD`. A number of at least 0, or a schedule.
        temperature: T, greater than 0, or a schedule. None is N/m with data, and 1 with
            `log_density`.
        forward_probability: probability of a forward move, in (0, 1]. The paper has
            0.5.
        refresh_probability: probability of a refresh, in [0, 1). A refresh proposes the
            position of the state with the next mini-batch, and accepts by the energies
            alone. The paper has 0.
        beta: factor of the noise of backward moves, at least 1. "auto" chooses the
            first beta from the first forward proposals.
        beta_adaptation: "replay" chooses beta at the end of each epoch of N // m steps,
            or at each step without mini-batches. "paper" is the rule of the paper. None
            keeps beta fixed.
        noise_temperature: temperature of the proposal's noise, greater than 0. None is
            1/N. Choose T for low dimensions.
        normalized: whether the density ratio has its normalising constants, which make
            detailed balance exact.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.rsgld(
    ...     0.5, beta=2.0, beta_adaptation=None, noise_temperature=1.0, normalized=True
    ... )

    Reference: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with
    reversible SGLD proposal", section 2.3 and 3.2.
    """
    adaptation = BetaAdaptation.of(beta, beta_adaptation)
    proposal = proposals.ReversibleLangevin(
        adaptation.first or 1.0, noise_temperature, normalized, forward_probability
    )
    return Metropolis(
        checked_learning_rate(learning_rate),
        temperature,
        proposal,
        adaptation=adaptation,
        refresh_probability=refresh_probability,
    )
