"""Planted bugs in accepting, in densities of proposals and in contours."""

from keras import ops

from keras_mhmcmc.fit.state import Energies
from keras_mhmcmc.samplers import mhbt
from keras_mhmcmc.samplers.parts import acceptance
from keras_mhmcmc.samplers.parts import contour
from keras_mhmcmc.samplers.parts import proposals
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.sgld import sgld
from tests.statistics.planting import bug
from tests.statistics.planting import wrap

# Accepting.


@bug(
    "acceptance at 1.5 T",
    "acceptance.accept_or_reject",
    ("mint", "gaussian"),
    ("mhbt_langevin", "regression"),
    kind="temperature",
    is_short=True,
)
def _(monkeypatch):
    def around(real, *args, temperature):
        return real(*args, temperature=1.5 * temperature)

    wrap(monkeypatch, acceptance, "accept_or_reject", around)


@bug(
    "acceptance without the energies",
    "acceptance.energy_log_ratio",
    ("mhbt_random_walk", "regression"),
    ("rsgld", "logistic"),
    kind="missing term",
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        acceptance,
        "energy_log_ratio",
        lambda real, *args: 0.0 * real(*args),
    )


@bug(
    "energy of the mean loss, not N times it",
    "Metropolis.decide",
    ("mint", "gaussian"),
    kind="units",
)
def _(monkeypatch):
    def around(real, self, state, evaluation):
        energy = evaluation.energy / evaluation.train_size
        return real(self, state, evaluation._replace(energy=energy))

    wrap(monkeypatch, mhbt.Metropolis, "decide", around)


@bug(
    "every proposal accepted",
    "acceptance.accept_or_reject",
    ("mhbt_reversible", "bimodal"),
    kind="acceptance",
    is_short=True,
)
def _(monkeypatch):
    def around(real, state, evaluated, pending, ratio, restart, uniform, **options):
        uniform = 0.0 * uniform + 1e-30
        return real(state, evaluated, pending, ratio, restart, uniform, **options)

    wrap(monkeypatch, acceptance, "accept_or_reject", around)


@bug(
    "every refresh accepted",
    "acceptance.accept_or_reject",
    ("mhbt_langevin", "regression"),
    kind="acceptance",
)
def _(monkeypatch):
    def around(real, state, evaluated, pending, ratio, restart, *args, **options):
        restart = (pending == acceptance.REFRESH) if restart is None else restart
        restart = restart | (pending == acceptance.REFRESH)
        return real(state, evaluated, pending, ratio, restart, *args, **options)

    wrap(monkeypatch, acceptance, "accept_or_reject", around)


@bug(
    "stale energy of the state",
    "acceptance.accept_or_reject",
    ("mint", "gaussian"),
    kind="stale value",
    is_short=True,
)
def _(monkeypatch):
    def around(real, state, evaluated, pending, *args, **options):
        new, info = real(state, evaluated, pending, *args, **options)
        kept = ops.where(pending == acceptance.PROPOSAL, state.energy, new.energy)
        return new._replace(energy=kept), info

    wrap(monkeypatch, acceptance, "accept_or_reject", around)


@bug(
    "a rejected point is not taken back",
    "acceptance.accept_or_reject",
    ("rsgld", "logistic"),
    kind="rejected state",
    is_short=True,
)
def _(monkeypatch):
    def around(real, state, evaluated, *args, **options):
        new, info = real(state, evaluated, *args, **options)
        return new._replace(position=evaluated.position), info

    wrap(monkeypatch, acceptance, "accept_or_reject", around)


@bug(
    "temperature of MINT without alpha",
    "mhbt.mint_temperature",
    ("mint", "gaussian"),
    kind="temperature",
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        mhbt,
        "mint_temperature",
        lambda real, alpha, size, batch: size / batch,
    )


# The densities of proposals.


@bug(
    "q-ratio's sign flipped",
    "proposals.langevin_log_ratio",
    ("mhbt_langevin", "skewed"),
    kind="density of proposals",
    is_short=True,
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        proposals,
        "langevin_log_ratio",
        lambda real, *args, **options: -real(*args, **options),
    )


@bug(
    "q-ratio left out",
    "proposals.langevin_log_ratio",
    ("mint", "gaussian"),
    kind="density of proposals",
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        proposals,
        "langevin_log_ratio",
        lambda real, *args, **options: 0.0 * real(*args, **options),
    )


@bug(
    "q-ratios of the two directions swapped",
    "proposals.squared_distances",
    ("rsgld", "logistic"),
    kind="density of proposals",
)
def _(monkeypatch):
    def around(real, *args, **options):
        r = real(*args, **options)
        return proposals.SquaredDistances(
            r.out_backward, r.out_forward, r.change_backward, r.change_forward
        )

    wrap(monkeypatch, proposals, "squared_distances", around)


@bug(
    "normalising constants left out",
    "proposals.reversible_log_ratio",
    ("rsgld", "logistic"),
    kind="normalisation",
    is_short=True,
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        proposals,
        "reversible_log_ratio",
        lambda real, squared_distances, beta, dimension, normalized, p: real(
            squared_distances, beta, dimension, False, p
        ),
    )


@bug(
    "odds of the directions with the wrong sign",
    "proposals.reversible_log_ratio",
    ("rsgld_mostly_forward", "logistic"),
    kind="odds of proposals",
    is_short=True,
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        proposals,
        "reversible_log_ratio",
        lambda real, squared_distances, beta, dimension, normalized, p: real(
            squared_distances, beta, dimension, normalized, 1.0 - p
        ),
    )


@bug(
    "a refresh that also proposes",
    "Metropolis.move",
    ("rsgld_refreshing", "regression"),
    kind="move without its density",
    is_short=True,
)
def _(monkeypatch):
    # The point of a refresh is a proposal. To the chain it looks like one that was set.
    def around(real, self, current, evaluation):
        state = real(self, current, evaluation)
        scales = self.proposal.scales(
            evaluation.learning_rate, evaluation.temperature, evaluation.train_size
        )
        moved, _ = self.proposal.propose(
            state.point,
            state.gradient,
            evaluation.normals,
            evaluation.uniforms[1],
            scales,
        )
        refreshes = state.pending == acceptance.REFRESH
        point = tensors.select(refreshes, moved, state.point)
        return state._replace(point=point)

    wrap(monkeypatch, mhbt.Metropolis, "move", around)


@bug(
    "backward noise not widened",
    "ReversibleLangevin.propose",
    ("rsgld", "logistic"),
    kind="noise scale",
)
def _(monkeypatch):
    def around(real, self, *given):
        *others, scales = given
        return real(self, *others, scales._replace(beta=1.0 + 0.0 * scales.beta))

    wrap(monkeypatch, proposals.ReversibleLangevin, "propose", around)


# Contours.


@bug(
    "samples without their weights",
    "Energies.of_sample",
    ("csgld", "gaussian"),
    ("csghmc", "bimodal"),
    kind="weight of samples",
    is_short=True,
)
def _(monkeypatch):
    def around(real, self):
        info = real(self)
        return info._replace(log_weight=0.0 * info.log_weight)

    wrap(monkeypatch, Energies, "of_sample", around)


@bug(
    "the weight of another point",
    "Energies.of_sample",
    ("csghmc", "gaussian"),
    kind="weight of samples",
)
def _(monkeypatch):
    def around(real, self):
        info = real(self)
        last = ops.convert_to_numpy(self.variable)[..., 5]
        return info._replace(log_weight=last)

    wrap(monkeypatch, Energies, "of_sample", around)


@bug(
    "gradient without its factor",
    "contour.multiplier_and_log_weight",
    ("csgld", "gaussian"),
    kind="missing factor",
)
def _(monkeypatch):
    def around(real, *args):
        factor, log_weight = real(*args)
        return 1.0 + 0.0 * factor, log_weight

    wrap(monkeypatch, contour, "multiplier_and_log_weight", around)


@bug(
    "factor on the noise as well",
    "sgld.move",
    ("csgld", "gaussian"),
    is_subtle=True,
    kind="noise scale",
)
def _(monkeypatch):
    def around(real, self, current, now):
        (z,) = now.normals
        factor = ops.reshape(now.multiplier + ops.zeros(z.shape[:1]), (-1, 1, 1))
        return real(self, current, now._replace(normals=[factor * z]))

    wrap(monkeypatch, sgld, "move", around)


@bug(
    "factor's slope flipped",
    "contour.multiplier_and_log_weight",
    ("csgld", "gaussian"),
    kind="sign",
)
def _(monkeypatch):
    def around(real, *args):
        factor, log_weight = real(*args)
        return 2.0 - factor, log_weight

    wrap(monkeypatch, contour, "multiplier_and_log_weight", around)
