"""Chains whose loss is above that of a constant prediction: they sample nothing.

A network that ignores its inputs can predict the mean of the targets, or the
frequencies of the classes. A chain with a larger loss has run away, or has not come
down yet. At equilibrium a chain may be above the best fit, by T/2 for each direction
that the data determine: at most one for each weight, and one for each output of each
example. So a chain must be above the constant prediction by more than this.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.compiled_loss import OF_LABELS
from keras_mhmcmc.fit.compiled_loss import OF_REGRESSIONS
from keras_mhmcmc.fit.compiled_loss import name_of
from keras_mhmcmc.fit.loss_terms import output_shape
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.losses import Likelihood
from keras_mhmcmc.parallel.stacked_model import StackedModel
from keras_mhmcmc.posterior.store import Record
from keras_mhmcmc.tuning.batches import batches_of

_EXAMPLES = 1000  # whose targets give the loss of a constant prediction
_BATCH = 250
_SMALLEST = 1e-7  # of a probability: the bound of Keras' cross-entropies
_IN_A_ROW = 3  # samples above the limit that are told while `fit` runs
_BELOW = 0.02  # of the constant loss: below it by so much is no constant prediction
# The loss in inference may be larger by this factor, and by so many nats.
_FACTOR, _NATS = 1.5, 0.1

REMEDY = (
    "Lower the learning rate: `mh.suggest_learning_rate(model, x, y)` tries several. "
    "With a known noise, the largest stable rate grows with the square of `noise_std`. "
    "If the loss is still on its way down, standardise the targets, raise the rate, or "
    "keep samples later (`burn_in`)."
)


class Runaway:
    """The losses of the samples of a `fit`, beside that of a constant prediction."""

    def __init__(self) -> None:
        # Losses, (chains,): of the first mini-batch of the chain, the lowest of an
        # epoch, and that of the newest sample.
        self._first: Array | None = None
        self._lowest: Array | None = None
        self._last: Array | None = None
        self._has_fled: Any = False  # of each chain, and it has not come back
        self._constant: float | None = None
        self._is_known = self._is_told = False

    def begin(self, model: keras.Model, sampler: Sampler, is_new: bool) -> None:
        """Look at the loss of the first mini-batch of a `fit`.

        Args:
            model: trains.
            sampler: its optimizer.
            is_new: whether the chain begins.
        """
        self._is_known = self._is_told = False
        if is_new or self._first is None:
            self._first, self._lowest = _mean_losses(model, sampler), None
            self._has_fled = False

    def excess(
        self, model: keras.Model, sampler: Sampler, is_sample: bool = True
    ) -> list[float] | None:
        """Return how far the loss of each chain is above the limit, nats an example.

        It is the mean over the epoch so far. None: the loss is not known.
        """
        if not self._is_known:
            self._constant, self._is_known = _constant_loss(model), True
        losses = _mean_losses(model, sampler)
        if losses is None or self._first is None:
            return None
        if is_sample and self._last is None:
            _warn_of_lag(model, float(losses[0]))
        before = losses if self._lowest is None else self._lowest
        self._lowest = np.fmin(before, losses)
        if is_sample:
            self._last = losses
        slack = _slack(model, sampler)
        base: Any = self._constant
        limit: Any
        if base is None:  # far above the start
            base, limit = self._first, np.maximum(slack, np.abs(self._first))
        elif not sampler.algorithm.traits.takes_prior:  # the noise is learned
            limit = max(slack, abs(base))
        else:
            # A chain that never was below has not come down yet: it may stay near its
            # start, whose loss one mini-batch shows.
            scale = max(abs(base), 1.0)
            far = 2.0 * np.maximum(self._first - base, 0.0) + scale
            limit = slack + np.where(self._lowest < base, 0.0, far)
            # A chain that runs away on its way down, and whose units die, falls to the
            # constant. It has come down once it is clearly below.
            is_below = self._lowest < base - _BELOW * scale
            is_far = losses > base + slack + far
            self._has_fled = (self._has_fled | is_far) & ~is_below
            limit = np.where(self._has_fled, -_BELOW * scale, limit)
        # A chain whose loss is not finite is lost, and gives no sample.
        excess = np.where(np.isfinite(losses), losses - base - limit, -math.inf)
        return [float(x) for x in excess]

    def tell(
        self, model: keras.Model, records: Sequence[Record], is_over: bool = False
    ) -> bool:
        """Warn, once, of samples above the limit, and return whether there are any.

        Args:
            model: trains.
            records: of all samples.
            is_over: whether `fit` ends. Before its end several in a row are needed.
        """
        if self._last is None or self._first is None or not records:
            return False
        is_above = are_above(records, len(self._last))
        now, first = float(np.mean(self._last)), float(np.mean(self._first))
        if not is_above.any():
            if is_over and self._constant is not None:
                if model.optimizer.algorithm.traits.compares_batches:
                    # Its energies are those of mini-batches that favoured the states.
                    now = _loss_of_state(model)
                if now > self._constant:
                    warn(
                        f"The newest samples have a mean loss of {now:.4g} nats, and a "
                        "prediction that ignores the inputs has "
                        f"{self._constant:.4g}: the chain has not come down. {REMEDY}"
                    )
            return False
        newest = [record.excess or [-math.inf] for record in records[-_IN_A_ROW:]]
        is_lasting = len(newest) == _IN_A_ROW and min(map(min, newest)) > 0.0
        if self._is_told or not (is_over or is_lasting):
            return True
        self._is_told = True
        than = f"it was {first:.4g} at the start of this `fit`"
        if self._constant is not None:
            than = f"a constant prediction has {self._constant:.4g}, and {than}"
        warn(
            f"The mean loss of {is_above.sum()} of {is_above.size} samples is far "
            "above that of a prediction that ignores the inputs. Now it is "
            f"{now:.4g} nats; {than}. An ensemble leaves these samples out. "
            f"{REMEDY}"
        )
        return True


class NoSampleError(ValueError):
    """All samples are of chains that ran away, or that have not come down."""


def are_above(records: Sequence[Record], chains: int) -> npt.NDArray[np.bool_]:
    """Return which samples an ensemble leaves out, shape (samples, chains).

    If most of the last third of a chain is above the limit, all of the chain is left
    out. A burst that comes down again costs its own samples alone.
    """
    unknown = [-math.inf] * chains
    rows = [unknown if record.excess is None else record.excess for record in records]
    above = np.array(rows, "float64").reshape(len(rows), chains) > 0.0
    late = above[-max(len(above) // 3, 1) :]
    return above | (late.mean(axis=0) > 0.5)


def tell_of_left_out(is_above: npt.NDArray[np.bool_], what: str) -> None:
    """Warn of samples, or of chains, that are left out.

    Args:
        is_above: whether each is.
        what: they are.

    Raises:
        NoSampleError: none is left.
    """
    if not is_above.any():
        return
    found = (
        f"{is_above.sum()} of {is_above.size} {what} have a mean loss far "
        "above that of a prediction that ignores the inputs. A chain ran away, or "
        f"has not come down yet. {REMEDY}"
    )
    if is_above.all():
        raise NoSampleError(f"There is no sample of a posterior: {found}")
    warn(f"{found} They are left out.")


def _mean_losses(model: keras.Model, sampler: Sampler) -> Array | None:
    """Return the mean loss of each chain in this epoch so far, shape (chains,).

    Between its steps a Metropolis-Hastings sampler evaluates proposals, and Keras
    averages their losses. The energies are those of the states.
    """
    if sampler.algorithm.traits.compares_batches:
        energy = sampler.chain_diagnostics().get("energy")
        if energy is None:
            return None
        return (energy - sampler.prior_energies()) / sampler.train_size
    if isinstance(model, StackedModel):
        losses = model.chain_results().get("loss")
    else:
        losses = model.get_metrics_result().get("loss")
    if losses is None:
        return None
    return np.asarray(ops.convert_to_numpy(losses), "float64").reshape(-1)


def _slack(model: keras.Model, sampler: Sampler) -> float:
    """Return what equilibrium may add to the mean loss, in nats."""
    weights = sum(math.prod(v.shape) for v in sampler.sampled_variables)
    directions = weights / (sampler.num_chains or 1) / sampler.train_size
    shape = output_shape(model)
    if shape is not None:
        directions = min(directions, math.prod(shape))
    return 0.5 * sampler.temperature_now() * directions


def _constant_loss(model: keras.Model) -> float | None:
    """Return the mean loss of the best constant prediction, None if it is not known.

    It is known for one output with a loss of Keras for classes or regressions, or a
    loss of `mh.losses`, where the data of `fit` can be read a second time.
    """
    data, losses = _backend.fitted_data(model), _backend.compiled_losses(model)
    shape = output_shape(model)
    if data is None or any(
        data[f"{k}_weight"] is not None for k in ("class", "sample")
    ):
        return None
    if len(losses) != 1 or losses[0][1] != 1.0 or shape is None:
        return None
    # An output without an axis for time has no mask.
    if len(shape) > 1 and _backend.makes_masks(_backend.network_of(model)):
        return None
    batches = _read(model, _EXAMPLES // _BATCH)
    targets = [y for _, y, _ in batches]
    if not all(isinstance(y, np.ndarray) and y.ndim > 0 for y in targets):
        return None
    given = keras.tree.flatten(model.loss)[0]
    outputs = _constant(given, np.concatenate(targets), shape) if targets else None
    if outputs is None:
        return None
    outputs = outputs.astype("float32")
    found = [
        _loss(model, np.broadcast_to(outputs, (len(y), *shape)), y, weights)
        for _, y, weights in batches
    ]
    return float(np.average(found, weights=list(map(len, targets))))


def _loss_of_state(model: keras.Model) -> float:
    """Return the mean loss of the state, over the data that gave the constant loss."""
    found = []
    for x, y, weights in _read(model, _EXAMPLES // _BATCH):
        outputs = model(x, training=False)
        is_stacked = isinstance(model, StackedModel)
        members = ops.moveaxis(outputs, 1, 0) if is_stacked else outputs[None]
        found += [_loss(model, member, y, weights) for member in members]
    return float(np.mean(found))


def _read(model: keras.Model, count: int) -> list[Any]:
    """Return mini-batches of `fit`, none if they can be read only once."""
    data = _backend.fitted_data(model)
    if data is None:
        return []
    try:
        stream = batches_of(data["x"], data["y"], _BATCH, seed=0)
        return list(itertools.islice(stream(), count))
    except ValueError:  # a generator, whose mini-batches belong to `fit`
        return []


def _loss(model: keras.Model, outputs: Any, y: Any, weights: Any = None) -> float:
    """Return the mean loss of outputs."""
    y_true, y_pred = ops.convert_to_tensor(y), ops.convert_to_tensor(outputs)
    # Not by `Loss.__call__`, which divides by the number of replicas.
    loss = _backend.compiled_losses(model)[0][0]
    values = np.asarray(ops.convert_to_numpy(loss.call(y_true, y_pred)))
    if weights is not None:
        values = values * weights.reshape(len(weights), *[1] * (values.ndim - 1))
    return float(np.mean(values))


def _warn_of_lag(model: keras.Model, training: float) -> None:
    """Warn if a model has a much larger loss in inference than in training.

    The moving statistics of batch normalisation may lag behind the weights. Several
    chains, several losses and data that can be read only once are left alone.

    Args:
        model: in a `fit`, with the weights of a sample.
        training: its mean loss in this epoch, nats.
    """
    layers = [
        layer.name
        for layer in _backend.inner_layers(model)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
    ]
    is_one = len(_backend.compiled_losses(model)) == 1
    if not layers or not is_one or isinstance(model, StackedModel):
        return
    for x, y, _ in _read(model, 1):
        inference = _loss(model, model(x, training=False), y)
        if inference > _FACTOR * training + _NATS:
            warn(
                f"At the first sample the mean loss is {training:.3g} nats in "
                f"training, and {inference:.3g} in inference: the moving statistics of "
                "batch normalisation lag behind the weights. Estimate those of each "
                "sample with `posterior.ensemble(model, recalibrate=x)`, keep samples "
                "later (`burn_in`), or give the layers a smaller `momentum`. "
                f"Received: {', '.join(layers[:5])}"
            )


def _constant(loss: Any, y: Array, shape: tuple[int, ...]) -> Array | None:
    """Return the best outputs that are the same for all examples, or None.

    Args:
        loss: of the only output, as given to `compile`.
        y: targets, shape (examples, ...).
        shape: of the output of one example.
    """
    name = name_of(loss)
    if isinstance(loss, Likelihood):
        return loss.constant(y).reshape(shape)
    if name == "sparsecategoricalcrossentropy":
        counts = np.bincount(y.astype("int64").reshape(-1).clip(0), minlength=shape[-1])
        share = counts[: shape[-1]] / counts.sum()
    elif name in ("categoricalcrossentropy", OF_LABELS, *OF_REGRESSIONS):
        share = y.astype("float64").mean(axis=0).reshape(shape)
    else:
        return None
    if name in OF_REGRESSIONS:
        return share
    share = np.clip(share, _SMALLEST, 1.0 - _SMALLEST)
    is_object = isinstance(loss, keras.losses.Loss)
    if not (is_object and loss.get_config().get("from_logits", False)):
        return share
    return np.log(share / (1.0 - share) if name == OF_LABELS else share)
