"""Bugs of the kernels whose moves follow the gradient of a batch."""

from keras_mhmcmc.samplers import poisson
from keras_mhmcmc.samplers.parts import bounded
from tests.statistics.planting import wrap


def of_way_back(monkeypatch):
    """A log r without the densities of the proposals."""
    for name in ("langevin_log_ratio", "barker_log_ratio"):
        wrap(
            monkeypatch,
            bounded,
            name,
            lambda real, *args, **options: 0.0 * real(*args, **options),
        )


def of_half_way_back(monkeypatch):
    """A way back with the gradient of the position."""
    for name in ("langevin_log_ratio", "barker_log_ratio"):
        wrap(
            monkeypatch,
            bounded,
            name,
            lambda real, delta, gradient, _, *args, **options: real(
                delta, gradient, gradient, *args, **options
            ),
        )


def of_turned_ratio(monkeypatch):
    """The densities of the proposals the wrong way round."""
    for name in ("langevin_log_ratio", "barker_log_ratio"):
        wrap(
            monkeypatch,
            bounded,
            name,
            lambda real, *args, **options: -real(*args, **options),
        )


def of_sign(monkeypatch):
    """Moves down the gradient, whose densities are those of moves up."""
    for name in ("langevin", "barker"):
        wrap(
            monkeypatch,
            bounded,
            name,
            lambda real, point, gradient, *args: real(
                point, [-g for g in gradient], *args
            ),
        )


def of_new_decisions(monkeypatch):
    """A second visit in which every arrival stays, for the gradient alone."""

    def around(real, self, *args):
        judged = real(self, *args)
        return judged._replace(slope=judged.slope / judged.probability)

    wrap(monkeypatch, poisson.poisson, "judge", around)


def of_slope(monkeypatch):
    """A way back whose gradient lacks the examples."""

    def around(real, self, *args):
        judged = real(self, *args)
        return judged._replace(slope=0.0 * judged.slope)

    wrap(monkeypatch, poisson.poisson, "judge", around)


BUGS_OF_GRADIENTS = [
    ("tuna of langevin", of_way_back),
    ("tuna of langevin", of_turned_ratio),
    ("tuna of langevin on all of the data", of_sign),
    ("poisson of langevin", of_way_back),
    ("poisson of langevin", of_half_way_back),
    ("poisson of langevin", of_sign),
    ("poisson of langevin", of_new_decisions),
    ("poisson of langevin", of_slope),
    ("poisson of barker", of_way_back),
    ("poisson of barker", of_turned_ratio),
    ("poisson of barker", of_sign),
    ("poisson of barker", of_slope),
]
