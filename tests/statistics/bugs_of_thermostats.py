"""Planted bugs in the thermostat of SGNHT."""

from keras_mhmcmc.algorithms import sgnht
from tests.statistics.planting import bug
from tests.statistics.planting import scaled
from tests.statistics.planting import wrap


@bug(
    "thermostat's noise forgotten",
    "sgnht.sgnht_step",
    ("sgnht", "correlated"),
    kind="missing term",
)
def _(monkeypatch):
    def around(real, position, velocity, thermostat, gradient, normals, **options):
        normals = scaled(normals, 0.0)
        return real(position, velocity, thermostat, gradient, normals, **options)

    wrap(monkeypatch, sgnht, "sgnht_step", around)


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
