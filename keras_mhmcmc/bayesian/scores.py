"""Negative log-likelihoods of single examples, by network and of mixtures."""

import dataclasses
import math
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._data import rows
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.ensemble.compile import Outputs
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.fit.compiled_loss import OF_LABELS
from keras_mhmcmc.fit.compiled_loss import OF_REGRESSIONS
from keras_mhmcmc.fit.compiled_loss import name_of
from keras_mhmcmc.losses.likelihood import Likelihood

tree = keras.tree

# Of the trained members in the mean. The least, a fiftieth, or one of N + 1 with N
# held-out examples if this is less, insures against targets that no sample expects
# (Hesterberg 1995, "Weighted average importance sampling and defensive mixture
# distributions"): one test example of Energy, split 1, had a log density of -131 by the
# samples alone, and of -13 with a fiftieth. A fiftieth costs up to .02 nats, on kin8nm
# (N = 737) .001.
_LEAST = 0.02
_SHARES = (0.1, 0.5, 1.0)

_ROWS = 200_000  # network outputs that are scored at a time
_BATCH = 1024  # examples of a prediction
_NUMBERS = (4_000_000, 100_000_000)  # of a batch of inputs, of all outputs at a time
_TERMS = 64  # of an example that are scored; they are drawn where it has more
# Keras' mean of these is over the outputs, too.
_OF_OUTPUTS = (OF_LABELS, *OF_REGRESSIONS, "poisson")


class Nats:
    """The loss that a model was compiled with, as nats of each example.

    Args:
        model: compiled; its losses are means over examples.
    """

    def __init__(self, model: keras.Model) -> None:
        outputs = Outputs(model)
        self.losses = outputs.listed(model.loss)
        weights = _backend.compile_arguments(model).get("loss_weights")
        self.weights = [1.0 if w is None else w for w in outputs.listed(weights)]

    def nats(self, y: Any, outputs: Any, masks: Sequence[Any] | None = None) -> Tensor:
        """Return the negative log-likelihood in nats of each term, shape (N, terms).

        The terms of an example are its positions, such as the pixels of an image, or
        its labels. With several outputs it has one, the weighted sum of their means.
        """
        total: Any = 0.0
        flat = tree.flatten(outputs)
        if masks is None:
            masks = [_backend.mask_of(output) for output in flat]
        parts = zip(
            self.losses, self.weights, tree.flatten(y), flat, masks, strict=True
        )
        for loss, weight, target, output, mask in parts:
            if loss is None:
                continue
            values, _ = nats_of(loss, target, output, mask)
            if len(flat) == 1:
                return weight * values
            total = total + weight * ops.mean(values, axis=1, keepdims=True)
        return total

    def terms(self, y: Any, outputs: Any) -> list[int]:
        """Return how many terms an example has in the loss of each output."""
        parts = zip(self.losses, tree.flatten(y), tree.flatten(outputs), strict=True)
        return [0 if p[0] is None else nats_of(*p, None)[0].shape[1] for p in parts]


def nats_of(
    loss: Any, target: Any, output: Any, mask: Any
) -> tuple[Tensor, float | Tensor]:
    """Return the nats of each term, (N, terms), and the part of them that counts.

    A mask leaves out the others, that of the output or that of an `ignore_class`.
    """
    loss = keras.losses.get(loss)
    call = loss.call if isinstance(loss, keras.losses.Loss) else loss
    if len(target.shape) == len(output.shape) - 1 and output.shape[-1] == 1:
        target = ops.expand_dims(target, -1)
    if isinstance(loss, Likelihood):
        if mask is not None:
            target = target, ops.cast(mask, "float32")
        values, masks = call(target, output), []
    elif name_of(loss) in _OF_OUTPUTS:
        values = call(ops.expand_dims(target, -1), ops.expand_dims(output, -1))
        masks = [mask]
    else:
        values = call(target, output)
        masks = [mask, _backend.mask_of(values)]
    share: float | Tensor = 1.0
    counts = [ops.cast(mask, values.dtype) for mask in masks if mask is not None]
    if counts:
        count = math.prod(counts[1:], start=counts[0])
        share = ops.mean(count)
        extra = [1] * (len(values.shape) - len(count.shape))
        values = values * ops.reshape(count, (*ops.shape(count), *extra))
    return ops.reshape(values, (ops.shape(values)[0], -1)), share


class HeldOut:
    """Examples that score networks which have not seen them.

    Args:
        model: the compiled model.
        x: inputs.
        y: targets.
    """

    def __init__(self, model: keras.Model, x: Any, y: Any) -> None:
        self._model, self._nats = model, Nats(model).nats
        self.x, self.y = x, y
        self.size = len(tree.flatten(y)[0])
        self._numbers: tuple[int, int] | None = None  # of outputs, and with inputs
        self._ensembles: dict[int, Ensemble] = {}

    def nats(self, stacked: Sequence[Array]) -> Array:
        """Return the nats of each term under each network, (networks, N, terms).

        The last axis is left out if an example has one term.

        Args:
            stacked: one array (networks, ...) for each of `model.weights`.
        """
        count = len(stacked[0])
        if count not in self._ensembles:
            self._ensembles[count] = Ensemble(self._model, count, "linear")
        ensemble = self._ensembles[count]
        ensemble.set_members(stacked, np.ones(count))
        if self._numbers is None:
            x = rows(self.x, slice(1))
            outputs = _numbers(self._model(x, training=False))
            self._numbers = outputs, outputs + _numbers(x)
        chunk = max(1, _NUMBERS[1] // (count * self._numbers[0]))
        batch = int(np.clip(_NUMBERS[0] // self._numbers[1], 1, _BATCH))
        found = []
        for begin in range(0, self.size, chunk):
            x, y = rows((self.x, self.y), slice(begin, begin + chunk))
            outputs = ensemble.predict_members(x, batch_size=batch)
            masks = None
            if _backend.makes_masks(self._model):  # they do not depend on the weights
                own = tree.flatten(self._model(x, training=False))
                masks = [_backend.mask_of(output) for output in own]
            found.append(nats_of_members(self._nats, y, outputs, masks))
        return np.concatenate(found, axis=1)


def _numbers(arrays: Any) -> int:
    """Return how many numbers an example has."""
    return sum(math.prod(array.shape[1:]) for array in tree.flatten(arrays))


def nats_of_members(
    function: Callable[..., Tensor],
    y: Any,
    outputs: Any,
    masks: Sequence[Any] | None = None,
) -> Array:
    """Return the nats of outputs of several networks, float64, (networks, N, terms).

    The last axis is left out if an example has one term.

    Args:
        function: of targets, outputs and masks, as `Nats.nats`.
        y: targets.
        outputs: of the networks, (networks, N, ...).
        masks: of the outputs of one network.
    """
    count, size = tree.flatten(outputs)[0].shape[:2]
    chunk = max(1, _ROWS // size)
    found = []
    for first in range(0, count, chunk):
        part = tree.map_structure(lambda o, i=first: o[i : i + chunk], outputs)
        number = len(tree.flatten(part)[0])
        flat = tree.map_structure(lambda o: o.reshape(-1, *o.shape[2:]), part)

        def repeated(array: Any, number: int = number) -> Any:
            array = ops.convert_to_numpy(array)
            return np.tile(array, (number, *[1] * (array.ndim - 1)))

        targets = tree.map_structure(repeated, y)
        own = [None if mask is None else repeated(mask) for mask in masks or ()]
        nats = ops.convert_to_numpy(function(targets, flat, own or None))
        nats = nats.reshape(number, size, -1).astype("float64")
        if nats.shape[2] > _TERMS:
            order = np.random.default_rng(0).permutation(nats.shape[2])
            nats = nats[:, :, np.sort(order[:_TERMS])]
        found.append(nats[:, :, 0] if nats.shape[2] == 1 else nats)
    return np.concatenate(found)


def mean_of(nats: Array) -> Array:
    """Return the mean over the terms of each example, all axes but the first."""
    return nats.reshape(len(nats), -1).mean(axis=1)


def mixture(nats: Array, weights: Array | None = None) -> Array:
    """Return the nats of the mean of the densities, a mean over the terms, (N,).

    Args:
        nats: of each network, (networks, N) or (networks, N, terms).
        weights: of the networks in the mean, which sum to 1. None: equal.
    """
    return mean_of(_of_mean(nats, weights))


def _of_mean(nats: Array, weights: Array | None = None) -> Array:
    """Return the nats of the mean of the densities, (N,) or (N, terms)."""
    count = len(nats)
    log_weights = np.full(count, -np.log(count))
    if weights is not None:
        log_weights = np.log(np.maximum(weights, 1e-300))
    log_weights = log_weights.reshape(-1, *[1] * (nats.ndim - 1))
    return -np.logaddexp.reduce(log_weights - nats, axis=0)


def lowest(
    score: Callable[[Any], float],
    start: Any,
    axes: dict[str, Sequence[float]],
    is_clear: Callable[[Any, Any], bool] | None = None,
) -> Any:
    """Return the setting that no neighbour on an axis beats, one axis after another.

    Args:
        score: of a setting, a frozen dataclass.
        start: the first setting.
        axes: name of a field, and the values that are tried of it.
        is_clear: whether the first of two settings is better by more than the noise. A
            larger rate or temperature must be: its harm shows in chains longer than
            those of a trial. None: need not.
    """
    best, nll = start, score(start)
    for name, values in axes.items():
        for step in (1, -1):
            while True:
                place = values.index(getattr(best, name)) + step
                if not 0 <= place < len(values):
                    break
                other = dataclasses.replace(best, **{name: values[place]})
                if not score(other) < nll:
                    break
                is_bold = name in ("rate", "temperature") and step > 0
                if is_bold and is_clear is not None and not is_clear(other, best):
                    break
                best, nll = other, score(other)
    return best


@dataclass
class Average:
    """Networks, their weights in the mean, and what the held-out examples say."""

    stacked: Sequence[Array]  # (networks, ...) for each of `model.weights`
    weights: Array  # (networks,), their sum is 1
    nll: float


def is_clearly_better(nats: Array, other: Array, errors: float = 1.0) -> bool:
    """Return whether nats are lower than others by more than the noise.

    Args:
        nats: of held-out examples, (N,).
        other: of the same examples.
        errors: how many standard errors are noise.
    """
    gains = other - nats
    return float(np.mean(gains)) > errors * float(np.std(gains)) / np.sqrt(len(gains))


def share_of_members(
    members: Array, samples: Array, has_classes: bool
) -> tuple[float, Array]:
    """Return the members' part of the mean with the lowest nats, and these, (N,).

    Where no part is clearly better, a regression takes half: the mean of two
    predictions has no more nats than the mean of theirs. There the members alone must
    be better by three standard errors. Their errors are rare and large, so that a few
    examples flatter them: on a curve with a gap 20 of them preferred the members by .05
    nats, 2,000 new ones the samples by .15. For classes the members alone are usual,
    and another part must be better by two standard errors, since the best of many
    trials counts. On digits samples that led by 1.2 lost .013 test nats.

    Args:
        members: nats of held-out examples under each, (members, N, ...).
        samples: the same, (samples, N, ...).
        has_classes: whether the nats are those of labels.
    """
    of_members, of_samples = -_of_mean(members), -_of_mean(samples)
    found: dict[float, Array] = {}
    with np.errstate(divide="ignore"):
        for share in (min(_LEAST, 1.0 / (members.shape[1] + 1)), *_SHARES):
            pair = np.log(share) + of_members, np.log1p(-share) + of_samples
            found[share] = mean_of(-np.logaddexp(*pair))
    best = min(found, key=lambda share: np.mean(found[share]))
    usual, errors = (1.0, 2.0) if has_classes else (0.5, 3.0 if best == 1.0 else 1.0)
    if not is_clearly_better(found[best], found[usual], errors):
        best = usual
    return best, found[best]


def averaged(
    members: Sequence[Array], samples: Sequence[Array], share: float, nll: float
) -> Average:
    """Return the mean of the members, which get `share` of it, and the samples."""
    counts = len(members[0]), len(samples[0])
    parts = zip(counts, (share, 1.0 - share), (members, samples), strict=True)
    used = [(np.full(n, part / n), stacked) for n, part, stacked in parts if part > 0]
    arrays = zip(*(stacked for _, stacked in used), strict=True)
    weights = np.concatenate([weights for weights, _ in used])
    return Average([np.concatenate(a) for a in arrays], weights, nll)
