"""Planted bugs in what keeps the temperature of SGNHT and of SGMCLMC."""

from keras_mhmcmc.samplers import sgmclmc
from keras_mhmcmc.samplers import sgnht
from tests.statistics.planting import bug
from tests.statistics.planting import scaled
from tests.statistics.planting import wrap


@bug(
    "thermostat's noise forgotten",
    "sgnht.move",
    ("sgnht", "correlated"),
    kind="missing term",
)
def _(monkeypatch):
    def around(real, self, current, now):
        return real(self, current, now._replace(normals=scaled(now.normals, 0.0)))

    wrap(monkeypatch, sgnht.sgnht, "move", around)


@bug(
    "thermostat's sign flipped",
    "sgnht.next_thermostat",
    ("sgnht", "correlated"),
    ("sgnht", "regression"),
    kind="sign",
)
def _(monkeypatch):
    def around(real, thermostat, velocity, heat, rate):
        return real(thermostat, velocity, heat, -rate)

    wrap(monkeypatch, sgnht, "next_thermostat", around)


@bug(
    "thermostat of one weight, not n",
    "sgnht.next_thermostat",
    ("sgnht", "correlated"),
    kind="units",
)
def _(monkeypatch):
    def around(real, thermostat, velocity, heat, rate):
        size = velocity[0].shape[1]
        return real(thermostat, scaled(velocity, size**0.5), heat, rate)

    wrap(monkeypatch, sgnht, "next_thermostat", around)


@bug(
    "velocity of any length",
    "sgmclmc.normalised",
    ("sgmclmc", "regression"),
    kind="normalisation",
)
def _(monkeypatch):
    wrap(monkeypatch, sgmclmc, "normalised", lambda real, xs, otherwise, like: xs)
