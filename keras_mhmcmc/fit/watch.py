"""What a `fit` warns of: one table, and the watch of chains that accept or reject."""

from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.samplers.base import Traits

# A row: its name and the run that shows the harm, a test of `tests/fit`; what happened;
# after ">" the remedy. Whoever knows the condition gives the numbers in braces.
_TABLE = """
still (standstill::a_chain_that_accepts_nothing)
    {name} accepted none of the last {idle} proposals{chains}: the chain stands still,
    and its samples are copies of one state.
  > Lower the learning rate, raise the temperature, or compile with a new sampler if
    the loss or the data have changed. Now: learning_rate={rate:.3g},
    temperature={temperature:.3g}

undecided (barker::an_epoch_without_a_decision_warns)
    {name} decided no test in an epoch, and the chain did not move: the epoch has fewer
    examples than the test needs.
  > Leave out `steps_per_epoch`, so that an epoch has all `train_size` examples, or
    lower the learning rate.

warm-up (warm_up::a_fit_that_ends_in_the_warm_up_is_refused_or_told)
    {name} made {done} of its {count} plain first steps, and no sample yet.
  > Train for more epochs, or make the optimizer with a smaller `{argument}`. Now:
    {argument}={count}

coarse (standstill::energies_that_float32_cannot_compare)
    {name} compares energies of {largest:.3g} nats at the temperature {temperature:.3g}.
    Their float32 spacing is {spacing:.2g} nats, and rounding decides what is accepted.
  > Raise the temperature, or leave constants out of the loss.

late (standstill::a_rate_that_ends_near_zero_is_told)
    The learning rate fell to {last:.3g} at the last of {kept} samples, from {first:.3g}
    at the first and {start:.3g} at the start of this `fit`. The late samples are nearly
    copies of each other, and an ensemble of them is hardly more than one network.
  > Let the rate end above 0, such as with `alpha=0.1` of a `CosineDecay`, keep samples
    from many cycles of a cyclical schedule, or pass weight_by="learning_rate".

rise (standstill::an_energy_that_rises)
    The energy rose from {early:.4g} to {late:.4g} nats over the {epochs} epochs with
    kept samples: the chain has not settled.
  > Keep samples later (`burn_in`) and train longer, or, if the loss is worse than
    before training, lower the learning rate (now {rate:.3g}).

fall (standstill::an_energy_that_falls_is_told_and_one_that_stays_is_not)
    The energy fell from {early:.4g} to {late:.4g} nats over the {epochs} epochs with
    kept samples: the early ones are from before the chain settled, and make the
    ensemble worse.
  > Keep samples later (`burn_in`), and train longer.

runaway (runaway::a_runaway_regression_gives_no_ensemble)
    An ensemble leaves out {above} of {samples} samples: their mean loss is far above
    that of a prediction that ignores the inputs, or their weights are far too large for
    the prior. The loss is now {now:.4g} nats; {than}.
  > {LOWER}

high (runaway::samples_of_slow_metropolis_steps_are_told)
    The newest samples have a mean loss of {now:.4g} nats, and a prediction that ignores
    the inputs has {constant:.4g}: the chain has not come down.
  > {LOWER}

left out (runaway::a_chain_of_several_that_ran_away_is_left_out)
    {above} of {count} {what} are left out. Their mean loss is far above that of a
    prediction that ignores the inputs, or their weights are far too large for the
    prior.
  > {LOWER}

lag (lag::statistics_that_lag_are_told_and_the_remedy_helps)
    At the first sample the mean loss is {training:.3g} nats in training, and
    {inference:.3g} in inference: the moving statistics of batch normalisation lag
    behind the weights.
  > Estimate the statistics anew with `posterior.ensemble(model, recalibrate=x)`, keep
    samples later (`burn_in`), or give the layers a smaller `momentum`. Received:
    {layers}

no samples (short_fits::a_fit_that_keeps_nothing_says_so_once)
    This `fit` with {name} kept no sample of the posterior: the model has the last state
    of the chain alone.
  > Pass `callbacks=[posterior]` with `posterior = mh.PosteriorSamples()`, and predict
    with `posterior.ensemble(model)`.

batch_size (fit_sizes::a_batch_size_that_is_not_that_of_fit)
    `fit` uses mini-batches of {batch} examples, but the sampler has
    batch_size={expected}, from which its temperature follows.
  > Pass the same `batch_size` to both.

whole batch (fit_sizes::all_data_in_one_batch_give_no_noise)
    The sampler takes its noise from mini-batches, but `fit` has all {examples} examples
    in one: the chain hardly turns.
  > Pass a smaller `batch_size` to `fit`.

train_size (what_a_loss_says::a_train_size_that_is_not_the_length_is_told)
    An epoch of `fit` has {examples} examples{terms}, but the sampler has
    train_size={expected}, which sets the width of the posterior.
  > Unless `steps_per_epoch` sets the length of an epoch, pass the number of training
    examples, after `validation_split` and before augmentation, times the number of
    positions if the loss is a mean over several positions of each example.

last (fit_sizes::a_short_last_batch_and_a_size_without_one)
    The last mini-batch of an epoch has {last} examples, and the others have {batch}.
    The sampler uses the temperature of a full mini-batch for all, which makes the
    sampled distribution wider.
  > Drop the last mini-batch (`dataset.batch(..., drop_remainder=True)`), or use a size
    that divides {examples} nearly.

weights (fit_sizes::weights_that_multiply_the_likelihood)
    The {name} of `fit` counts an example {mean:.3g} times on average{seen}, and the
    likelihood with it. The sampled posterior is {width} than that of the data.
  > Divide the weights by their mean over the examples, unless you want this likelihood.

sum (fit_sizes::a_loss_of_ones_own_that_is_a_sum)
    The loss is a sum over the mini-batch: two examples give {once:.3g}, and the same
    two taken twice give {twice:.3g}. The sampler multiplies the loss by `train_size`,
    and with a sum the posterior is much too narrow.
  > Return one number for each example, or use `ops.mean` in place of `ops.sum`.

unknown (fit_sizes::a_loss_for_one_size_of_mini_batch)
    The loss must be a mean over the mini-batch. This was not checked, since the loss
    cannot be evaluated on two examples.
  > Let it take mini-batches of any size. Received: {error}

no likelihood (losses_without_likelihood::the_standard_deviation_of_squares)
    The loss {name!r} is no negative log-likelihood, and its size sets how wide the
    posterior is.{squares}
  > For classes use a cross-entropy, and for a regression
    `mh.losses.GaussianNLL(noise_std)` or `mh.SGLDSA(..., likelihood="gaussian")`.

another likelihood (losses_without_likelihood::label_smoothing_is_another_likelihood)
    The sampled posterior is not that of the data: weights of losses count each example
    several times, and label smoothing mixes each label with the others.
  > Leave them out, unless you want this likelihood. Received: {found}

half precision (around_fit::weights_in_half_precision_are_told)
    Weights in half precision lose the noise of a sampler: most of its steps are smaller
    than the distance between two numbers, and most weights never move.
  > Keep the weights in float32, with the policy 'mixed_bfloat16' or 'float32'.
    Received: {count} variables, such as '{path}' of dtype {dtype}

no gradient (warm_up::weights_without_a_gradient_are_told_and_harm_no_others)
    There are no gradients for {count} of {all} variables, such as {path}: the loss does
    not depend on them, and they wander.
  > Set `trainable = False` for their layers, or let the loss depend on them.
"""
_LOWER = (
    "Take the learning rate of `mh.suggest_learning_rate(model, x, y)`, or, if the "
    "loss still falls, standardise the targets and keep samples later (`burn_in`)."
)


class Row(NamedTuple):
    run: str
    text: str


def _rows() -> dict[str, Row]:
    found = {}
    for block in _TABLE.strip().split("\n\n"):
        head, _, text = block.partition("\n")
        name, _, run = head.removesuffix(")").partition(" (")
        text = " ".join(text.replace("\n  > ", " ").split())
        found[name] = Row(run, text.replace("{LOWER}", _LOWER))
    return found


ROWS = _rows()


def text_of(row: str, **facts: Any) -> str:
    return ROWS[row].text.format(**facts)


def tell(row: str, **facts: Any) -> None:
    warn(text_of(row, **facts))


# A chain stands still after so many rejected proposals in a row, if their probability
# at the chain's earlier acceptance is less than `_UNLIKELY`.
_MANY = 20
_UNLIKELY = 1e-5
# A state with a lucky batch waits for a refresh that is accepted: for a few of them.
_REFRESHES = 5
# Largest spacing of float32 at the energy, in units of the temperature, at which
# rounding does not decide. The table is in `docs/chains.md`.
_COARSE = 0.125


class Once:
    """Warnings that come once each; `name` is that of the sampler."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._told: set[str] = set()

    def tell(self, row: str, **facts: Any) -> None:
        self.say(row, text_of(row, name=self._name, **facts))

    def say(self, what: str, message: str | None) -> None:
        """Warn with this message, if any, unless there was one of this kind."""
        if message is not None and self.is_first(what):
            warn(message)

    def look_at_warm_up(self, steps: int, traits: Traits) -> None:
        argument, count = traits.warm_up_argument
        if 0 < steps <= traits.warm_up:
            done = min(steps, count)
            self.tell("warm-up", done=done, argument=argument, count=count)

    def is_first(self, what: str) -> bool:
        is_first = what not in self._told
        self._told.add(what)
        return is_first


class Standstill(Once):
    """Watch the counts of a sampler at the end of each epoch, and warn once."""

    def __init__(
        self, name: str, refresh_probability: float = 0.0, many: int = _MANY
    ) -> None:
        super().__init__(name)
        self._many = float(many)
        if refresh_probability > 0.0:
            self._many = max(many, _REFRESHES / refresh_probability)
        # () or (chains,): proposals rejected in a row, accepted and proposed so far.
        self._in_a_row: Any = 0
        self._accepted: Any = 0
        self._proposed: Any = 0
        self.has_looked = False

    def look(self, accepted: Array, proposed: Array, **now: float) -> None:
        """Warn of chains that have accepted nothing for long."""
        self.has_looked = True
        self._in_a_row = idle = np.where(accepted > 0, 0.0, self._in_a_row + proposed)
        self._accepted = self._accepted + accepted
        self._proposed = self._proposed + proposed
        before = self._accepted / np.maximum(self._proposed - idle, 1.0)
        chance = (1.0 - before) ** idle  # 1 if the chain never accepted a proposal
        is_still = idle >= self._many
        is_still &= (chance < _UNLIKELY) | (self._accepted == 0)
        if is_still.any():
            fewest, chains = int(idle[is_still].min()), _of_chains(is_still)
            self.tell("still", idle=fewest, chains=chains, **now)

    def look_at_lost(self, is_lost: Array, reason: str) -> None:
        """Warn of lost chains, () or (chains,), which have no finite state yet."""
        self.say("lost", reason if is_lost.any() else None)

    def look_at_energy(self, energy: Array, temperature: float) -> None:
        """Warn if float32 is too coarse for differences of these energies, nats."""
        largest = np.nanmax(np.abs(energy), initial=0.0)
        spacing = float(np.spacing(np.float32(largest)))
        if np.isfinite(spacing) and spacing > _COARSE * temperature:
            numbers = {"largest": largest, "spacing": spacing}
            self.tell("coarse", temperature=temperature, **numbers)


def reason_of_loss(name: str, is_lost: Array) -> str:
    """Return why chains have no state: no evaluated point was finite."""
    return (
        f"{name} has no state to sample{_of_chains(is_lost)}: the loss or the gradient "
        "was not finite at any point so far. Look for values that are not finite in "
        "the weights and in the data."
    )


def reason_of_stop(name: str, stopped_at: Array) -> str:
    """Return why chains were stopped at these steps, (chains,); -1: they go on."""
    chains = np.flatnonzero(stopped_at >= 0)
    which, others = "The chain was", ""
    if len(stopped_at) > 1:
        which = f"Chains {chains.tolist()} of {len(stopped_at)} were"
    if len(chains) < len(stopped_at):
        others = ", and the other chains go on"
    return (
        f"{which} stopped by {name} at step {stopped_at[chains].min()}{others}: the "
        "loss, or the gradient, was not finite. Look for such values in the data, or "
        "start from other weights, with a new sampler and a lower learning rate "
        "(`mh.suggest_learning_rate` finds one)."
    )


def _of_chains(chosen: Array) -> str:
    if chosen.ndim == 0:
        return ""
    return f" of the chains {np.flatnonzero(chosen).tolist()} of {len(chosen)}"
