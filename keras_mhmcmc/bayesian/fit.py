"""The phases of one `BayesianEnsemble.fit`."""

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc._data import rows
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import quiet
from keras_mhmcmc._warn import warn
from keras_mhmcmc.bayesian import scores
from keras_mhmcmc.bayesian.chains import COMPILED
from keras_mhmcmc.bayesian.chains import PILOT
from keras_mhmcmc.bayesian.chains import AllData
from keras_mhmcmc.bayesian.chains import MiniBatches
from keras_mhmcmc.bayesian.chains import Samples
from keras_mhmcmc.bayesian.chains import Setting
from keras_mhmcmc.bayesian.choices import Choice
from keras_mhmcmc.bayesian.choices import Phase
from keras_mhmcmc.bayesian.choices import has_classes
from keras_mhmcmc.bayesian.choices import has_fixed_rest
from keras_mhmcmc.bayesian.choices import is_cheapest
from keras_mhmcmc.bayesian.choices import is_random
from keras_mhmcmc.bayesian.choices import sampler_of
from keras_mhmcmc.bayesian.choices import steps_of
from keras_mhmcmc.bayesian.data import divided
from keras_mhmcmc.bayesian.data import weights_of_outputs
from keras_mhmcmc.bayesian.members import DECAYS
from keras_mhmcmc.bayesian.members import RATES
from keras_mhmcmc.bayesian.members import Members
from keras_mhmcmc.bayesian.members import Plan
from keras_mhmcmc.bayesian.members import Trainer
from keras_mhmcmc.bayesian.members import Training
from keras_mhmcmc.bayesian.progress import Progress
from keras_mhmcmc.bayesian.report import Report
from keras_mhmcmc.bayesian.saved import Saved
from keras_mhmcmc.bayesian.scores import Average
from keras_mhmcmc.bayesian.scores import averaged
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.losses.likelihood import Likelihood
from keras_mhmcmc.parallel.chains import ParallelChains

tree = keras.tree

_MOST_STEPS = 6000  # of a member, or these epochs if they are longer
_MOST_EPOCHS, _EPOCHS_OF_CLASSES = 100, 30
# Held-out labels. Digits, network 64: 144 of them chose a decay of .004, and its four
# members have .083 test nats; those of .1 have .059.
_HELD_OUT = 1000
_TERMS_OF = 256  # examples that tell how many terms one has
_KEPT_OF_A_PILOT = 200  # samples of all chains


class Fit:
    """One run of all phases.

    Args:
        model: the compiled network.
        compiled: its arguments of `compile`, besides the optimizer.
        optimizer: of the members.
        plan: sizes; its number of examples is found by `divide`.
        seed: of everything.
        progress: is told of each round, and of each run of chains.
        refit: whether what predicts learns from the held-out examples in the end.
    """

    def __init__(
        self,
        model: keras.Model,
        compiled: dict[str, Any],
        optimizer: Any,
        plan: Plan,
        seed: int,
        progress: Progress,
        refit: bool,
    ) -> None:
        self.report, self._refit = Report(), refit
        self.usual_count = 4  # of members; chains on all data have more
        self._model, self._compiled, self._optimizer = model, compiled, optimizer
        self._plan, self._seed, self._progress = plan, seed, progress
        self._saved = Saved(None, {})
        self._is_interrupted = self._compiles_steps = False
        self._training: Training | None = None  # of the members; None: given ones
        self._ends: list[Array] | None = None  # of the chains of the last trial

    # Data.

    def divide(
        self,
        x: Any,
        y: Any,
        weights: Any,
        class_weight: Any,
        split: float | None,
        held_out: Any,
    ) -> None:
        """Divide the examples into those for training and those held out.

        Args:
            x: inputs, or a loader of pairs.
            y: targets.
            weights: of the examples, or None.
            class_weight: weight of each class, or None.
            split: part that is held out, or None.
            held_out: `(x, y)` in its place, or None.
        """
        most = _HELD_OUT if self._refit and self._is_cosine else 0
        parts = divided(x, y, weights, class_weight, split, held_out, self._seed, most)
        self._data, self._is_training, (held_x, held_y) = parts
        if not self._model.built:
            self._model(rows(self._data[0], slice(1)))
        self._held_out = scores.HeldOut(self._model, held_x, held_y)
        likelihood = scores.Nats(self._model)
        losses, (x, y, weights) = likelihood.losses, self._data
        outputs = self._model(rows(x, slice(1)), training=False)
        if weights is not None:
            self._data = x, y, weights_of_outputs(weights, losses, outputs)
        terms = likelihood.terms(rows(y, slice(1)), outputs)
        if len(terms) > 1 and max(terms) > 1 and set(likelihood.weights) == {1.0}:
            warn(
                f"The loss of each output is a mean over its {terms} positions or "
                "labels, and its negative log-likelihood is their sum: pass "
                f"loss_weights={terms} to `compile`, or outputs with many count less."
            )
        for loss, targets in zip(losses, tree.flatten(self._data[1]), strict=True):
            if isinstance(loss, Likelihood):
                loss.warn_of_grid(targets)
        labels = tree.flatten(held_y)
        if has_classes(self._model) and any(len(np.unique(y)) == 1 for y in labels):
            warn(
                "The held-out examples have one class alone, and choose badly: pass a "
                "larger `validation_split`, or `validation_data` with all classes. "
                f"Now: {len(labels[0])} held-out examples"
            )
        self._plan.size = int(self._is_training.sum())

    def keep_in(self, directory: str, arguments: dict[str, Any]) -> None:
        """Keep what is finished in a folder, and take from there what is."""
        data = (self._data, self._is_training, self._held_out.x, self._held_out.y)
        arrays = [array for array in tree.flatten(data) if array is not None]
        self._saved = Saved(directory, arguments | {"data": arrays})

    # Members.

    def train(self, count: int) -> Members:
        """Return the trained members. For classes, several weight decays are tried."""
        found: dict[Training, tuple[Members, Array]] = {}

        def nll(training: Training) -> float:
            if training not in found:
                rate = next((members.rate for members, _ in found.values()), None)
                found[training] = self._trained(count, training, rate)
                if found[training][0].is_interrupted:
                    raise KeyboardInterrupt
            return float(np.mean(scores.mixture(found[training][1])))

        axes: dict[str, Sequence[float]] = {}
        start = Training()
        if self._optimizer == "adamw" and self._is_cosine:
            start, axes = Training(decay=DECAYS[2]), {"decay": DECAYS}
        try:
            best = scores.lowest(nll, start, axes)
        except KeyboardInterrupt:
            if not found:
                raise
            self._is_interrupted = True
            best = min(found, key=nll)
        best = _strongest(best, {t: scores.mixture(n) for t, (_, n) in found.items()})
        members, self._members_nats = found[best]
        self._training = best
        return members

    def _trained(
        self, count: int, training: Training, rate: float | None
    ) -> tuple[Members, Array]:
        """Return members, and their nats of the held-out examples."""
        part, begin = f"members {training}", time.monotonic()
        saved = self._saved.get(part)
        if saved is not None:
            self.report.rows.append(saved["row"])
            return Members(**saved["members"]), saved["nats"]
        chains = ParallelChains(self._model, count, seed=self._seed)
        optimizer: Any = self._optimizer
        plan = dataclasses.replace(self._plan)
        is_training = self._is_training
        if training.is_refit:
            is_training = np.ones_like(is_training)
            plan.size = len(is_training)
        rates: Sequence[float] = RATES if rate is None else (rate,)
        if training.decay is not None:
            optimizer = keras.optimizers.AdamW(weight_decay=training.decay)
        elif not isinstance(optimizer, str):
            optimizer = type(optimizer).from_config(optimizer.get_config())
            rates = ()
        chains.compile(optimizer, **self._compiled)
        chains.compile_steps(self._compiles_steps)
        trainer = Trainer(
            chains,
            rows(self._data, is_training),
            self._held_out,
            plan,
            self._seed,
            self._progress,
            self._saved,
            part,
        )
        if plan.epochs is not None:
            plan.epochs = round(plan.epochs * training.length)
        most = round(self._most() * training.length)
        members = trainer.train(rates, most, self._is_cosine)
        if not np.isfinite(members.nats).all():
            raise ValueError(
                "No member has finite losses on the held-out examples: check the data "
                "for NaN, and scale inputs and targets to a deviation of about 1. "
                f"Received: held-out losses {members.nats.tolist()}"
            )
        nats = members.crossed
        given = (("rate", members.rate), ("decay", training.decay))
        setting = ", ".join(f"{name}={v:g}" for name, v in given if v is not None)
        held_out = None if training.is_refit else nats
        phase = "refit" if training.is_refit else "members"
        row = self._add(phase, setting, members.steps, begin, held_out, count)
        if not members.is_interrupted:
            values = {"members": dataclasses.asdict(members), "nats": nats, "row": row}
            self._saved.put(part, values)
        return members, nats

    @property
    def _is_cosine(self) -> bool:
        """Whether a member trains for a fixed time, with a rate that falls to 0.

        A few hundred held-out labels are too few to stop by: on digits this is .061
        nats where stopping has .067. Regressions overfit, and stop.
        """
        return isinstance(self._optimizer, str) and has_classes(self._model)

    def _most(self) -> int:
        epochs = _EPOCHS_OF_CLASSES if self._is_cosine else _MOST_EPOCHS
        return max(_MOST_STEPS, epochs * self._plan.epoch)

    def _refitted(self, members: Members, length: float = 1.0) -> Members:
        """Return members that learned from all examples, if `fit` trains for a time."""
        training = self._training
        if not self._refit or training is None or not self._is_cosine:
            return members
        training = dataclasses.replace(training, length=length, is_refit=True)
        if self._is_training.all():
            return members
        found, _ = self._trained(len(members.nats), training, members.rate)
        if found.is_interrupted:
            raise KeyboardInterrupt
        return found

    def _longer(self, members: Members, length: float) -> Members | None:
        """Return members that train for longer, or None where they are worse."""
        if self._training is None or not self._is_cosine:
            return None
        training = dataclasses.replace(self._training, length=length)
        longer, nats = self._trained(len(members.nats), training, members.rate)
        if longer.is_interrupted:
            raise KeyboardInterrupt
        before, after = scores.mixture(self._members_nats), scores.mixture(nats)
        if scores.is_clearly_better(before, after):
            return None
        self._members_nats = nats
        return longer

    def take(self, members: Sequence[keras.Model]) -> Members:
        """Return networks that were trained before as members."""
        values = zip(*(model.get_weights() for model in members), strict=True)
        stacked = [np.stack(arrays) for arrays in values]
        nats = self._members_nats = self._held_out.nats(stacked)
        self._add("members", "given", 0, time.monotonic(), nats)
        mean = scores.mean_of(nats)
        return Members(stacked, mean, np.stack([mean, mean]), nats, steps=self._most())

    # Samples.

    def phase(self, choice: Choice) -> Phase:
        """Return the chains that sample."""
        size, few = len(self._is_training), rows(self._data[0], slice(32))
        is_fixed = has_fixed_rest(self._model, few)
        sampler = sampler_of(choice, self._model, size, is_fixed)
        if isinstance(sampler, Sampler | type):
            return MiniBatches(
                self._model,
                self._compiled,
                self._data,
                self._is_training,
                self._plan.batch_size,
                self._terms(),
                sampler,
                self._seed,
                self._progress,
            )
        self.usual_count = 16 if is_cheapest(self._model, size) else 8
        epochs = self._plan.epochs
        is_long = epochs is None or epochs * self._plan.epoch >= COMPILED
        # A compiled step draws other random numbers.
        self._compiles_steps = (
            is_long
            and self._compiled.get("jit_compile") is not False
            and _backend.can_compile()
            and not is_random(self._model, few)
        )
        data = self._data, self._is_training
        return AllData(self._model, *data, sampler, self._seed, self._progress)

    def sample(
        self, phase: Phase, members: Members, choice: Choice, sampling: float | str
    ) -> Average:
        """Return the networks that are averaged."""
        model, count = self._model, len(members.nats)
        weights = np.full(count, 1.0 / count)
        best = Average(members.stacked, weights, self._members_nll)
        if self._is_interrupted:
            _warn_of_interruption(best)
            return best
        size, share = len(self._is_training), PILOT
        steps = steps_of(phase, model, size, members.steps or self._most(), sampling)
        if isinstance(phase, AllData):
            share = phase.plan(steps, is_cheapest(model, size))
            if sampling != 0 and is_random(model, rows(self._data[0], slice(32))):
                self.report.notes.append(
                    "The chains sample the network as it predicts, without dropout."
                )
        kept = choice.kept(model, count)
        few = min(kept, max(1, _KEPT_OF_A_PILOT // count))
        pilot = min(steps, max(2 * few, int(share * steps)))
        tried: dict[Setting, Array | None] = {}

        def score(setting: Setting) -> float:
            nonlocal best
            if setting not in tried:
                samples, nats = self._run(phase, members.stacked, setting, pilot, few)
                tried[setting] = nats
                if samples is not None and nats is not None:
                    share, mean = self._share(nats)
                    if (nll := float(np.mean(mean))) < best.nll:
                        best = averaged(members.stacked, samples.stacked, share, nll)
            nats = tried[setting]
            return np.inf if nats is None else float(np.mean(scores.mixture(nats)))

        def is_clear(one: Setting, other: Setting) -> bool:
            nats, others = tried[one], tried[other]
            if nats is None or others is None:
                return others is None
            return scores.is_clearly_better(
                scores.mixture(nats), scores.mixture(others)
            )

        try:
            if sampling == 0:
                members = self._refitted(members)
                return Average(members.stacked, weights, best.nll)
            axes = choice.axes(model, phase)
            start = choice.start(model, phase)
            setting = scores.lowest(score, start, axes, is_clear)
            nats, length = tried[setting], 1.0
            twice = 1.0 + (1.0 if isinstance(sampling, str) else sampling)
            longer = self._longer(members, twice)
            if longer is not None:
                members, length = longer, twice
            share, mean = 1.0, scores.mixture(self._members_nats)
            note = "No chain was sound"
            if nats is not None:
                share, mean = self._share(nats)
                note = "Sampling did not pay here"
            nll = float(np.mean(mean))
            if self._members_nll < best.nll:
                best = Average(members.stacked, weights, self._members_nll)
            members = self._refitted(members, length)
            if share < 1.0:
                starts = members.stacked
                if isinstance(phase, AllData) and self._ends:
                    starts = self._ends
                    phase.seed += count  # other noise than that of the trial
                samples, _ = self._run(phase, starts, setting, steps, kept, True)
                if samples is not None:
                    note = f"Part of the members in the mean: {share:g}."
                    self.report.notes.append(note)
                    return averaged(members.stacked, samples.stacked, share, nll)
                note = "No chain was sound"
            how = "" if length == 1.0 else f", for {length:g} times as long"
            self.report.notes.append(f"{note}: these are the trained members{how}.")
            return Average(members.stacked, weights, nll)
        except KeyboardInterrupt:
            _warn_of_interruption(best)
            return best

    def _share(self, nats: Array) -> tuple[float, Array]:
        has = has_classes(self._model)
        return scores.share_of_members(self._members_nats, nats, has)

    @property
    def _members_nll(self) -> float:
        return float(np.mean(scores.mixture(self._members_nats)))

    def _terms(self) -> float:
        """Return the mean number of terms of an example in the loss."""
        losses, size = scores.Nats(self._model).losses, len(self._is_training)
        if len(losses) > 1:
            return 1
        # Of all examples: sequences may be sorted by their lengths.
        data = rows(self._data[:2], slice(None, None, max(1, size // _TERMS_OF)))
        counts: list[float] = []
        for x, y, _ in _data.batches(*data, batch_size=self._plan.batch_size):
            output, target = (tree.flatten(part)[0] for part in (self._model(x), y))
            mask = _backend.mask_of(output)
            values, share = scores.nats_of(losses[0], target, output, mask)
            if isinstance(share, float):  # nothing is left out
                return int(values.shape[1])
            terms = values.shape[1] * ops.convert_to_numpy(share)
            counts += [float(terms)] * len(values)
        return float(np.mean(counts))

    def _run(
        self,
        phase: Phase,
        starts: Sequence[Array],
        setting: Setting,
        steps: int,
        kept: int,
        is_last: bool = False,
    ) -> tuple[Samples | None, Array | None]:
        """Run chains, and return their samples and the held-out nats.

        A trial that a folder has is not run again, and gives its nats alone. The last
        chains have none if they learn from the held-out examples.
        """
        name, begin = "samples" if is_last else "trial", time.monotonic()
        is_pilot = not (is_last and self._refit)
        part = f"{name} {setting}, {steps} steps"
        saved = self._saved.get(part)
        if saved is not None:
            self.report.rows.append(saved["row"])
            self.report.notes.extend(saved["notes"])
            stacked, self._ends = saved["stacked"], saved.get("ends")
            return None if stacked is None else Samples(stacked), saved["nats"]
        with contextlib.nullcontext() if is_last else quiet():
            samples = phase.run(starts, setting, steps, kept, is_pilot)
        notes = [
            f"Chain {chain} at {setting} is left out: its energy error is {error:.3g}, "
            "more than ten times what was asked for."
            for chain, error in samples.left_out.items()
        ]
        if samples.returns:
            times = ", ".join(f"{k} ({n})" for k, n in samples.returns.items())
            notes.append(
                f"{name.capitalize()} {setting}: chains that were sent back, each time "
                f"with half of the step: {times}."
            )
        self.report.notes.extend(notes)
        if not len(samples):
            return None, None
        nats = self._held_out.nats(samples.stacked) if is_pilot else None
        row = self._add(name, str(setting), samples.steps, begin, nats, len(samples))
        stacked = list(samples.stacked) if is_last else None
        self._ends = samples.ends
        values = {"stacked": stacked, "nats": nats, "row": row, "notes": notes}
        self._saved.put(part, values | {"ends": samples.ends})
        if nats is not None:
            nll = float(np.mean(scores.mixture(nats)))
            self._progress.tell(f"{name} {setting}", 1, 1, val_loss=nll)
        return samples, nats

    def _add(
        self,
        phase: str,
        setting: str,
        steps: int,
        begin: float,
        nats: Array | None,
        networks: int | None = None,
    ) -> dict[str, Any]:
        row: dict[str, Any] = dict(phase=phase, setting=setting, steps=steps)
        row["seconds"] = time.monotonic() - begin
        row["networks"] = networks if nats is None else len(nats)
        if nats is not None:
            each = scores.mixture(nats)
            row["nll"] = float(np.mean(each))
        if nats is not None and phase == "trial":
            gains = scores.mixture(self._members_nats) - each
            row["gain"] = float(np.mean(gains))
            row["error"] = float(np.std(gains) / np.sqrt(len(gains)))
        return self.report.add(**row)


def _strongest(best: Training, nats: dict[Training, Array]) -> Training:
    """Return the strongest decay within a standard error of the best.

    Breiman and others (1984), "Classification and regression trees", section 3.4.3.
    """
    for training in sorted(nats, key=lambda t: -(t.decay or 0.0)):
        if not scores.is_clearly_better(nats[best], nats[training]):
            return training
    return best


def _warn_of_interruption(best: Average) -> None:
    warn(
        "`fit` was interrupted, and predicts with the best so far: "
        f"{len(best.weights)} networks, with {best.nll:.4g} held-out nats an example. "
        "With `directory`, the same call of `fit` goes on."
    )
