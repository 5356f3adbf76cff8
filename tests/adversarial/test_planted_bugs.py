"""Bugs that are planted into the attacks, one at a time: a check fails for each."""

import pytest
from keras import ops

from keras_mhmcmc.adversarial import apgd
from keras_mhmcmc.adversarial import balls
from keras_mhmcmc.adversarial import gradient_attacks
from keras_mhmcmc.adversarial import named_attacks
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial import pgd
from keras_mhmcmc.adversarial import square_search
from keras_mhmcmc.evaluation import checks
from tests.adversarial import test_apgd
from tests.adversarial import test_square
from tests.adversarial import test_strongest
from tests.statistics.planting import wrap
from tests.support import attack_checks

BUGS = {}


def bug(*checks):
    """Enters a bug, and the checks that must fail for it."""

    def enter(plant):
        for check in checks:
            BUGS[f"{plant.__name__}-{check.__name__}"] = plant, check
        return plant

    return enter


# Each check holds without a bug: other files run it.


def pgd_optimum():
    attack_checks.check_optimum_of_two_classes(pgd, "linf")


def l2_optimum():
    attack_checks.check_optimum_of_two_classes(apgd, "l2")


def oracle():
    attack_checks.check_oracle_of_apgd()


def long_oracle():
    attack_checks.check_oracle_of_apgd(norm="l2", steps=30)


def margin_oracle():
    attack_checks.check_oracle_of_apgd(loss="margin")


def dlr_oracle():
    attack_checks.check_oracle_of_apgd(loss="dlr", norm="l2")


def targeted_oracle():
    attack_checks.check_oracle_of_apgd(loss="targeted_dlr")


def l2_ball():
    for attack in (pgd, apgd):
        attack_checks.check_in_the_ball(attack, "l2", steps=8)


def limits():
    for attack in (pgd, apgd):
        attack_checks.check_in_the_ball(attack, "linf", steps=8)


def kept():
    attack_checks.check_a_curved_model_keeps_its_best()


def labels():
    attack_checks.check_labels()


def square_corner():
    test_square.test_a_linear_model_is_led_to_the_corner("softmax")


def square_ball():
    test_square.test_in_the_ball_and_the_limits((0.25, 0.75))


def square_place():
    test_square.test_the_second_query_is_of_a_square()


def never_weaker_than_one():
    test_strongest.TestStrongest().test_never_weaker_than_one_of_them()


def restarts():
    test_apgd.TestRestarts().test_more_runs_are_never_weaker(pgd)


@bug(pgd_optimum, l2_optimum, oracle, labels)
def sign_of_the_gradient(monkeypatch):
    wrap(monkeypatch, balls, "direction", lambda real, *a: -real(*a))


@bug(l2_ball)
def projection_on_the_wrong_ball(monkeypatch):
    around = lambda real, *given: real(*given[:-1], "linf")
    wrap(monkeypatch, balls, "project", around)


@bug(l2_ball)
def projection_of_the_wrong_length(monkeypatch):
    wrap(monkeypatch, balls, "_length", lambda real, *a: 0.9 * real(*a))


@bug(l2_optimum)
def signs_in_the_l2_ball(monkeypatch):
    around = lambda real, gradient, norm: real(gradient, "linf")
    wrap(monkeypatch, balls, "direction", around)


@bug(limits, square_ball)
def no_limits(monkeypatch):
    around = lambda real, x, clip: (real(x, clip)[0], None)
    wrap(monkeypatch, checks, "inputs_and_limits", around)


@bug(kept, restarts)
def best_point_lost(monkeypatch):
    def around(real, best, point, *given):
        return real(best, point, *given)._replace(point=point)

    wrap(monkeypatch, balls, "remember", around)


@bug(kept, square_corner)
def weakest_point_kept(monkeypatch):
    around = lambda real, *given: ops.logical_not(real(*given))
    wrap(monkeypatch, balls, "is_stronger", around)


@bug(labels)
def labels_shifted(monkeypatch):
    def around(real, classifier, x, y):
        clean, found = real(classifier, x, y)
        return clean, (found + 1) % clean.shape[1]

    wrap(monkeypatch, objective, "clean_and_labels", around)


@bug(oracle)
def no_momentum(monkeypatch):
    monkeypatch.setattr(gradient_attacks, "MOMENTUM", 1.0)


@bug(oracle)
def never_halved(monkeypatch):
    wrap(monkeypatch, gradient_attacks, "intervals", lambda real, steps: {})


@bug(long_oracle)
def halved_at_each_checkpoint(monkeypatch):
    monkeypatch.setattr(gradient_attacks, "SUCCESSES", 2.0)


@bug(oracle)
def half_of_the_steps_are_enough(monkeypatch):
    monkeypatch.setattr(gradient_attacks, "SUCCESSES", 0.5)


@bug(long_oracle)
def clipped_after_the_projection(monkeypatch):
    monkeypatch.setattr(balls, "nearest", balls.project)


@bug(oracle)
def first_step_of_epsilon(monkeypatch):
    around = lambda real, start, labels, size: real(start, labels, size / 2.0)
    wrap(monkeypatch, gradient_attacks, "_new_run", around)


def replace_loss(monkeypatch, name, loss):
    monkeypatch.setitem(objective.LOSSES, name, loss)


@bug(margin_oracle)
def margin_of_cross_entropy(monkeypatch):
    replace_loss(monkeypatch, "margin", objective.log_odds)


@bug(dlr_oracle)
def dlr_without_its_scale(monkeypatch):
    replace_loss(monkeypatch, "dlr", objective.margin)


@bug(targeted_oracle)
def target_forgotten(monkeypatch):
    def loss(case):
        targets = (case.targets + 1) % case.outputs.shape[1]
        return objective.targeted_dlr(case._replace(targets=targets))

    replace_loss(monkeypatch, "targeted_dlr", loss)


@bug(square_place)
def squares_too_large(monkeypatch):
    around = lambda real, covered, *given: real(min(3.0 * covered, 1.0), *given)
    wrap(monkeypatch, square_search, "window", around)


@bug(square_corner)
def squares_never_smaller(monkeypatch):
    around = lambda real, query, queries, initial: initial
    wrap(monkeypatch, square_search, "share", around)


@bug(never_weaker_than_one)
def attacks_judged_by_other_labels(monkeypatch):
    def around(real, argument, attack, given, options):
        given = given._replace(labels=(given.labels + 1) % 5)
        return real(argument, attack, given, options)

    wrap(monkeypatch, named_attacks, "run", around)


@pytest.mark.filterwarnings("ignore:Argument `model` has a gradient of zero")
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name, monkeypatch):
    plant, check = BUGS[name]
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()
