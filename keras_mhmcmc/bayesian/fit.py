"""The phases of one `BayesianEnsemble.fit`."""

import dataclasses
import functools
import time
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_mhmcmc import _data
from keras_mhmcmc import _validate
from keras_mhmcmc._data import rows
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.bayesian import scores
from keras_mhmcmc.bayesian.chains import AllData
from keras_mhmcmc.bayesian.chains import MiniBatches
from keras_mhmcmc.bayesian.chains import Samples
from keras_mhmcmc.bayesian.chains import Setting
from keras_mhmcmc.bayesian.data import LEAST_HELD_OUT
from keras_mhmcmc.bayesian.data import check_finite
from keras_mhmcmc.bayesian.data import checked_size
from keras_mhmcmc.bayesian.members import RATES
from keras_mhmcmc.bayesian.members import Members
from keras_mhmcmc.bayesian.members import Plan
from keras_mhmcmc.bayesian.members import Trainer
from keras_mhmcmc.bayesian.report import Report
from keras_mhmcmc.losses.likelihood import Likelihood
from keras_mhmcmc.optimizers.compiled_loss import name_of
from keras_mhmcmc.optimizers.names import NAMED
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.parallel.chains import ParallelChains

tree = keras.tree

_MOST_STEPS, _MOST_EPOCHS = 6000, 100  # the longer of both, of a member
_STEPS = (3000, 8000)  # of chains on all data, the fewest and the most
_PILOT = 0.25  # steps of a trial, as a part of those of the last chains
# Samplers whose rate, temperature and prior the held-out examples choose. Those with
# weights, a pilot or tests are given as an object.
BY_NAME: dict[str, type[Sampler]] = {
    name: NAMED[name] for name in ("sgld", "psgld", "sghmc", "sgnht")
}
_CHEAP = 2e7  # examples times weights: all data in one gradient
_SHARES = (0.0, 0.1, 0.5, 1.0)  # of the trained members in the mean
_KEPT = 200  # samples
# What is tried for classes, around the first setting.
_TEMPERATURES = (0.01, 0.03, 0.1, 1.0)
_PRIORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_NUMBERS_KEPT = 40_000_000  # of all samples together


@dataclass(frozen=True)
class Choice:
    """The arguments of a `BayesianEnsemble` that "auto" leaves to held-out data."""

    sampler: Any
    temperature: float | str
    prior: float | str
    max_samples: int | None


class Fit:
    """One run of all phases.

    Args:
        model: the compiled network.
        compiled: its arguments of `compile`, besides the optimizer.
        optimizer: of the members.
        plan: sizes; its number of examples is found by `divide`.
        seed: of everything.
        verbose: 0 is silent.
    """

    def __init__(
        self,
        model: keras.Model,
        compiled: dict[str, Any],
        optimizer: Any,
        plan: Plan,
        seed: int,
        verbose: int | str,
    ) -> None:
        self.report = Report()
        self._model, self._compiled, self._optimizer = model, compiled, optimizer
        self._plan, self._seed, self._verbose = plan, seed, verbose
        self._begin = time.monotonic()
        self._samples: Samples | None = None  # of the last chains

    # Data.

    def divide(self, x: Any, y: Any, weights: Any, split: float, held_out: Any) -> None:
        """Divide the examples into those for training and those held out.

        Args:
            x: inputs, or a loader of pairs.
            y: targets.
            weights: of the examples, or None.
            split: part that is held out.
            held_out: `(x, y)` in its place, or None.
        """
        if y is None and not _data.is_dataset(x):
            raise ValueError(
                "Argument `x` must be given with `y`, or be a loader whose batches are "
                f"pairs (x, y). Received: x={_validate.shown(x)}, y=None"
            )
        read = functools.partial(_data.read, needs_targets=True)
        x, y, weights = _data.as_arrays(tuple(read(x, y, weights)))
        size = checked_size((x, y))
        check_finite({"x": x, "y": y, "sample_weight": weights})
        is_training = np.ones(size, bool)
        if held_out is None:
            interval = _validate.Interval(0.0, 1.0, low_open=True)
            split = _validate.number("validation_split", split, interval)
            count = min(max(LEAST_HELD_OUT, round(split * size)), size // 2)
            order = np.random.default_rng(self._seed).permutation(size)
            is_training[order[:count]] = False
            held_out = rows((x, y), ~is_training)
        elif _data.is_dataset(held_out):
            held_out = read(held_out)
        self._data, self._is_training = (x, y, weights), is_training
        held_x, held_y = _data.as_arrays(tuple(held_out[:2]))
        self._held_out = scores.HeldOut(self._model, held_x, held_y)
        losses = scores.Nats(self._model).losses
        for loss, targets in zip(losses, tree.flatten(y), strict=True):
            if isinstance(loss, Likelihood):
                loss.warn_of_grid(targets)
        labels = tree.flatten(held_y)
        if _has_classes(self._model) and any(len(np.unique(y)) == 1 for y in labels):
            warn(
                "The held-out examples have one class alone, and choose badly: pass a "
                "larger `validation_split`, or `validation_data` with all classes. "
                f"Now: {len(labels[0])} held-out examples"
            )
        self._plan.size = int(is_training.sum())

    # Members.

    def train(self, count: int) -> Members:
        """Return the trained members."""
        begin = time.monotonic()
        chains = ParallelChains(self._model, count, seed=self._seed)
        is_name = isinstance(self._optimizer, str)
        optimizer = self._optimizer
        if not is_name:
            optimizer = type(optimizer).from_config(optimizer.get_config())
        chains.compile(optimizer, **self._compiled)
        data = rows(self._data, self._is_training)
        trainer = Trainer(
            chains, data, self._held_out, self._plan, self._seed, self._told
        )
        members = trainer.train(RATES if is_name else (), self._most())
        if not np.isfinite(members.nats).all():
            raise ValueError(
                "No member has finite losses on the held-out examples: check the data "
                "for NaN, and scale inputs and targets to a deviation of about 1. "
                f"Received: held-out losses {members.nats.tolist()}"
            )
        self._members_nats = self._held_out.nats(members.stacked)
        setting = "" if members.rate is None else f"rate={members.rate:g}"
        self._add("members", setting, members.steps, begin, self._members_nats)
        return members

    def _most(self) -> int:
        return max(_MOST_STEPS, _MOST_EPOCHS * self._plan.epoch)

    def take(self, members: Sequence[keras.Model]) -> Members:
        """Return networks that were trained before as members."""
        values = zip(*(model.get_weights() for model in members), strict=True)
        stacked = [np.stack(arrays) for arrays in values]
        self._members_nats = self._held_out.nats(stacked)
        self._add("members", "given", 0, time.monotonic(), self._members_nats)
        return Members(stacked, np.mean(self._members_nats, axis=1), None, self._most())

    def _told(self, phase: str, logs: dict[str, float]) -> None:
        if self._verbose:
            seconds = time.monotonic() - self._begin
            print(
                f"\r{phase}: round {logs['round'] + 1:.0f}, loss {logs['loss']:.4f}, "
                f"{seconds:.0f} s",
                end="",
                flush=True,
            )

    # Samples.

    def sample(
        self, members: Members, choice: Choice, sampling: float | str, refit: bool
    ) -> tuple[list[Array], Array]:
        """Return the networks that are averaged, and their weights in the mean."""
        count = len(members.stacked[0])
        alone = members.stacked, np.full(count, 1.0 / count)
        if sampling == 0:
            return alone
        phase = self._phase(choice.sampler)
        steps = members.steps
        if sampling != "auto":
            steps = max(1, int(float(sampling) * steps))
        elif isinstance(phase, AllData):
            # Long chains where a gradient is cheap: millions of examples times weights.
            cost = len(self._is_training) * self._model.count_params() / 1e6
            steps = int(np.clip(_STEPS[1] / np.sqrt(cost), *_STEPS))
        kept = self._kept(choice.max_samples, count)
        pilot = max(2 * kept, int(_PILOT * steps))
        tried: dict[Setting, Array | None] = {}

        def nll(setting: Setting) -> float:
            if setting not in tried:
                tried[setting] = self._run(
                    phase, members.stacked, setting, pilot, kept, True
                )
            nats = tried[setting]
            return np.inf if nats is None else float(np.mean(scores.mixture(nats)))

        setting = _lowest(nll, self._start(phase, choice), self._axes(phase, choice))
        nats = tried[setting]
        share = 1.0 if nats is None else self._share(nats)
        samples = None
        if share < 1.0:
            self._run(phase, members.stacked, setting, steps, kept, not refit)
            samples = self._samples
        if samples is None:
            note = "No chain was sound" if nats is None else "Sampling did not pay here"
            self.report.notes.append(f"{note}: these are the trained members.")
            return alone
        number = len(samples)
        if share == 0.0:
            return samples.stacked, np.full(number, 1.0 / number)
        pairs = zip(samples.stacked, members.stacked, strict=True)
        stacked = [np.concatenate(pair) for pair in pairs]
        weights = np.concatenate(
            [np.full(number, (1.0 - share) / number), np.full(count, share / count)]
        )
        return stacked, weights

    def _phase(self, sampler: Any) -> AllData | MiniBatches:
        model = self._model
        is_cheap = (
            len(self._is_training) * model.count_params() <= _CHEAP
            and not model.non_trainable_variables
        )
        if sampler == "auto" and not is_cheap:
            sampler = "psgld"
        sampler = BY_NAME.get(sampler, sampler) if isinstance(sampler, str) else sampler
        if isinstance(sampler, Sampler | type):
            return MiniBatches(
                model,
                self._compiled,
                self._data,
                self._is_training,
                self._plan.batch_size,
                sampler,
                self._seed,
            )
        kernel = None if sampler == "auto" else sampler
        return AllData(model, self._data, self._is_training, kernel, self._seed)

    def _start(self, phase: AllData | MiniBatches, choice: Choice) -> Setting:
        """Return the first setting: what the user gave, or what is usual."""
        is_regression = not _has_classes(self._model)
        rates = phase.rates if isinstance(phase, MiniBatches) else []
        usual = Setting(0.03, 2.0) if isinstance(phase, AllData) else Setting(0.03, 0.5)
        if is_regression or not rates and isinstance(phase, MiniBatches):
            usual = Setting()
        given = {
            name: float(value)
            for name, value in (
                ("temperature", choice.temperature),
                ("prior", choice.prior),
            )
            if value != "auto"
        }
        rate = rates[1] if rates else None
        return dataclasses.replace(usual, rate=rate, **given)

    def _axes(
        self, phase: AllData | MiniBatches, choice: Choice
    ) -> dict[str, Sequence[float]]:
        """Return the values that are tried of each part of a setting."""
        axes: dict[str, Sequence[float]] = {}
        if isinstance(phase, MiniBatches):
            if not phase.rates:
                return {}
            axes["rate"] = phase.rates
        if _has_classes(self._model):
            if choice.temperature == "auto":
                axes["temperature"] = _TEMPERATURES
            if choice.prior == "auto":
                axes["prior"] = _PRIORS
        return axes

    def _kept(self, most: int | None, chains: int) -> int:
        """Return the samples of a chain that are kept."""
        if most is None:
            most = min(_KEPT, _NUMBERS_KEPT // max(1, self._model.count_params()))
        return max(1, most // chains)

    def _run(
        self,
        phase: AllData | MiniBatches,
        starts: Sequence[Array],
        setting: Setting,
        steps: int,
        kept: int,
        is_pilot: bool,
    ) -> Array | None:
        """Run chains, report them, and return the held-out nats of their samples."""
        begin = time.monotonic()
        samples = phase.run(starts, setting, steps, kept, is_pilot, bool(self._verbose))
        for chain, error in samples.left_out.items():
            self.report.notes.append(
                f"Chain {chain} at {setting} is left out: its energy error is "
                f"{error:.3g}, more than ten times what was asked for."
            )
        for chain, times in samples.returns.items():
            self.report.notes.append(
                f"Chain {chain} at {setting} was sent back {times} times, and had "
                "half of the step from then on."
            )
        self._samples = samples if len(samples) else None
        if self._samples is None:
            return None
        nats = self._held_out.nats(samples.stacked) if is_pilot else None
        name = "trial" if is_pilot else "samples"
        self._add(name, str(setting), samples.steps, begin, nats, len(samples))
        return nats

    def _share(self, nats: Array) -> float:
        """Return the members' part of the mean with the lowest held-out nats."""
        of_members = -scores.mixture(self._members_nats)
        of_samples = -scores.mixture(nats)
        with np.errstate(divide="ignore"):
            found = {
                share: -np.mean(
                    np.logaddexp(
                        np.log(share) + of_members, np.log1p(-share) + of_samples
                    )
                )
                for share in _SHARES
            }
        share = min(found, key=found.__getitem__)
        self.report.notes.append(f"Part of the members in the mean: {share:g}.")
        return share

    def _add(
        self,
        phase: str,
        setting: str,
        steps: int,
        begin: float,
        nats: Array | None,
        networks: int | None = None,
    ) -> None:
        row: dict[str, Any] = dict(phase=phase, setting=setting, steps=steps)
        row["seconds"] = time.monotonic() - begin
        row["networks"] = networks if nats is None else len(nats)
        if nats is not None:
            each = scores.mixture(nats)
            gains = scores.mixture(self._members_nats) - each
            row |= {"nll": float(np.mean(each)), "gain": float(np.mean(gains))}
            row["error"] = float(np.std(gains) / np.sqrt(len(gains)))
        self.report.add(**row)


def _lowest(
    score: Callable[[Setting], float],
    start: Setting,
    axes: dict[str, Sequence[float]],
) -> Setting:
    """Return the setting that no neighbour on an axis beats, one axis after another."""
    best = start
    for name, values in axes.items():
        for step in (1, -1):
            while True:
                place = values.index(getattr(best, name)) + step
                if not 0 <= place < len(values):
                    break
                other = dataclasses.replace(best, **{name: values[place]})
                if not score(other) < score(best):
                    break
                best = other
    score(best)
    return best


def _has_classes(model: keras.Model) -> bool:
    losses = scores.Nats(model).losses
    return any("entropy" in name_of(loss) for loss in losses if loss is not None)
