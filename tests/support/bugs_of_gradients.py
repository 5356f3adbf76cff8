"""Bugs of the kernels whose moves follow the gradient of a batch."""

from keras_mhmcmc.samplers import poisson
from tests.statistics.planting import wrap


def of_way_back(monkeypatch):
    """A log r without the densities of the proposals."""
    wrap(monkeypatch, poisson, "moved_log_ratio", lambda real, *args: 0.0 * real(*args))


def of_half_way_back(monkeypatch):
    """A way back with the gradient of the position."""

    def around(real, delta, gradient, _, like):
        return real(delta, gradient, gradient, like)

    wrap(monkeypatch, poisson, "moved_log_ratio", around)


def of_turned_ratio(monkeypatch):
    """The densities of the proposals the wrong way round."""
    wrap(monkeypatch, poisson, "moved_log_ratio", lambda real, *args: -real(*args))


def of_sign(monkeypatch):
    """Moves down the gradient, whose densities are those of moves up."""

    def around(real, point, gradient, *args):
        return real(point, [-g for g in gradient], *args)

    wrap(monkeypatch, poisson, "moved", around)


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
    ("poisson of barker", bug)
    for bug in (
        of_way_back,
        of_half_way_back,
        of_turned_ratio,
        of_sign,
        of_new_decisions,
        of_slope,
    )
]
