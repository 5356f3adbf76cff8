"""Negative log-likelihoods of single examples, by network and of mixtures."""

import dataclasses
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.ensemble.compile import Outputs
from keras_mhmcmc.ensemble.ensemble import Ensemble

tree = keras.tree

# Of the trained members in the mean. A fiftieth costs .02 nats at most, and insures
# against targets that no sample expects (Hesterberg 1995, "Weighted average importance
# sampling and defensive mixture distributions"): one test example of Energy, split 1,
# had a log density of -131 by the samples alone, and of -13 with it.
_SHARES = (0.02, 0.1, 0.5, 1.0)

_ROWS = 200_000  # network outputs that are scored at a time
_BATCH = 1024  # examples of a prediction


class Nats:
    """The loss that a model was compiled with, as nats of each example.

    Args:
        model: compiled; its losses are means over examples.
    """

    def __init__(self, model: keras.Model) -> None:
        outputs = Outputs(model)
        self.losses = outputs.listed(model.loss)
        weights = _backend.compile_arguments(model).get("loss_weights")
        self._weights = [1.0 if w is None else w for w in outputs.listed(weights)]

    def nats(self, y: Any, outputs: Any) -> Tensor:
        """Return the negative log-likelihood of each example in nats, shape (N,)."""
        total = 0.0
        parts = zip(
            self.losses,
            self._weights,
            tree.flatten(y),
            tree.flatten(outputs),
            strict=True,
        )
        for loss, weight, target, output in parts:
            if loss is None:
                continue
            loss = keras.losses.get(loss)
            call = loss.call if isinstance(loss, keras.losses.Loss) else loss
            if len(target.shape) == len(output.shape) - 1 and output.shape[-1] == 1:
                target = ops.expand_dims(target, -1)
            values = call(target, output)
            values = ops.reshape(values, (ops.shape(values)[0], -1))
            total = total + weight * ops.mean(values, axis=1)
        return total


class HeldOut:
    """Examples that score networks which have not seen them.

    Args:
        model: the compiled model.
        x: inputs.
        y: targets.
    """

    def __init__(self, model: keras.Model, x: Any, y: Any) -> None:
        self._model, self._likelihood = model, Nats(model)
        self.x, self.y = x, y
        self.size = len(tree.flatten(y)[0])
        self._ensembles: dict[int, Ensemble] = {}

    def nats(self, stacked: Sequence[Array]) -> Array:
        """Return the nats of each example under each network, (networks, N).

        Args:
            stacked: one array (networks, ...) for each of `model.weights`.
        """
        count = len(stacked[0])
        if count not in self._ensembles:
            self._ensembles[count] = Ensemble(self._model, count, "linear")
        ensemble = self._ensembles[count]
        ensemble.set_members(stacked, np.ones(count))
        outputs = ensemble.predict_members(self.x, batch_size=_BATCH)
        return nats_of_members(self._likelihood, self.y, outputs)


def nats_of_members(likelihood: Nats, y: Any, outputs: Any) -> Array:
    """Return the nats of outputs of several networks, float64, (networks, N)."""
    count, size = tree.flatten(outputs)[0].shape[:2]
    chunk = max(1, _ROWS // size)
    rows = []
    for first in range(0, count, chunk):
        part = tree.map_structure(lambda o, i=first: o[i : i + chunk], outputs)
        number = len(tree.flatten(part)[0])
        flat = tree.map_structure(lambda o: o.reshape(-1, *o.shape[2:]), part)
        targets = tree.map_structure(
            lambda t, n=number: np.tile(t, (n, *[1] * (t.ndim - 1))), y
        )
        nats = ops.convert_to_numpy(likelihood.nats(targets, flat))
        rows.append(nats.reshape(number, size).astype("float64"))
    return np.concatenate(rows)


def mixture(nats: Array, weights: Array | None = None) -> Array:
    """Return the nats of the mean of the densities, (N,).

    Args:
        nats: of each network, (networks, N).
        weights: of the networks in the mean, which sum to 1. None: equal.
    """
    count = len(nats)
    log_weights = np.full(count, -np.log(count))
    if weights is not None:
        log_weights = np.log(np.maximum(weights, 1e-300))
    return -np.logaddexp.reduce(log_weights[:, None] - nats, axis=0)


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


def share_of_members(members: Array, samples: Array) -> tuple[float, Array]:
    """Return the members' part of the mean with the lowest nats, and these, (N,).

    Half is taken if no other part is clearly better: the mean of two predictions has no
    more nats than the mean of theirs. The members alone must be better by three
    standard errors. Their errors are rare and large, so that a few examples flatter
    them: on a curve with a gap 20 of them preferred the members by .05 nats, 2,000 new
    ones the samples by .15.

    Args:
        members: nats of held-out examples under each, (members, N).
        samples: the same, (samples, N).
    """
    of_members, of_samples = -mixture(members), -mixture(samples)
    found: dict[float, Array] = {}
    with np.errstate(divide="ignore"):
        for share in _SHARES:
            pair = np.log(share) + of_members, np.log1p(-share) + of_samples
            found[share] = -np.logaddexp(*pair)
    best = min(found, key=lambda share: np.mean(found[share]))
    if not is_clearly_better(found[best], found[0.5], 3.0 if best == 1.0 else 1.0):
        best = 0.5
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
