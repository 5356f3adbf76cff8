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
from keras_mhmcmc.algorithms.metropolis import Metropolis
from keras_mhmcmc.losses import Likelihood
from keras_mhmcmc.optimizers.compiled_loss import OF_LABELS
from keras_mhmcmc.optimizers.compiled_loss import OF_REGRESSIONS
from keras_mhmcmc.optimizers.compiled_loss import name_of
from keras_mhmcmc.optimizers.loss_terms import output_shape
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.parallel.stacked_model import StackedModel
from keras_mhmcmc.posterior.lag import warn_of_lag
from keras_mhmcmc.posterior.store import Record
from keras_mhmcmc.tuning.batches import batches_of

_EXAMPLES = 1000  # whose targets give the loss of a constant prediction
_BATCH = 250
_SMALLEST = 1e-7  # of a probability: the bound of Keras' cross-entropies
_IN_A_ROW = 3  # samples above the limit that are told while `fit` runs

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
        self._constant: float | None = None
        self._is_known = False
        self._in_a_row = 0
        self._is_told = False

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

    def end_epoch(self, model: keras.Model, sampler: Sampler) -> Array | None:
        """Take the mean losses of the epoch so far, and return them, (chains,)."""
        losses = _mean_losses(model, sampler)
        if losses is not None:
            before = losses if self._lowest is None else self._lowest
            self._lowest = np.fmin(before, losses)
        return losses

    def excess(self, model: keras.Model, sampler: Sampler) -> list[float] | None:
        """Return how far the loss of each chain is above the limit, nats an example.

        It is the mean over the epoch so far. None: the loss is not known.
        """
        if not self._is_known:
            self._constant, self._is_known = _constant_loss(model), True
        losses = self.end_epoch(model, sampler)
        if losses is not None and self._last is None:
            warn_of_lag(model, float(losses[0]))
        if losses is None or self._first is None or self._lowest is None:
            return None
        self._last = losses
        slack = _slack(model, sampler)
        limit: Any = None
        if self._constant is None:  # far above the start
            limit = self._first + np.maximum(slack, np.abs(self._first))
        elif not sampler.algorithm.traits.takes_prior:  # the noise is learned
            limit = self._constant + max(slack, abs(self._constant))
        else:
            # A chain that never was below has not come down yet: it may stay near its
            # start, whose loss one mini-batch shows.
            height = 2.0 * np.maximum(self._first - self._constant, 0.0)
            height = height + max(abs(self._constant), 1.0)
            limit = self._constant + slack
            limit = np.where(self._lowest < self._constant, limit, limit + height)
        # A chain whose loss is not finite is lost, and gives no sample.
        excess = np.where(np.isfinite(losses), losses - limit, -math.inf)
        is_above = bool((excess > 0.0).all())
        self._in_a_row = self._in_a_row + 1 if is_above else 0
        return [float(x) for x in excess]

    def tell(self, records: Sequence[Record], is_over: bool = False) -> bool:
        """Warn, once, of samples above the limit, and return whether there are any.

        Args:
            records: of all samples.
            is_over: whether `fit` ends. Before its end several in a row are needed.
        """
        if self._last is None or self._first is None or not records:
            return False
        is_above = are_above(records, len(self._last))
        now, first = float(np.mean(self._last)), float(np.mean(self._first))
        if not is_above.any():
            if is_over and self._constant is not None and now > self._constant:
                warn(
                    f"The newest samples have a mean loss of {now:.4g} nats, and a "
                    f"prediction that ignores the inputs has {self._constant:.4g}: "
                    f"the chain has not come down. {REMEDY}"
                )
            return False
        if self._is_told or not (is_over or self._in_a_row >= _IN_A_ROW):
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
    if isinstance(sampler.algorithm, Metropolis):
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
    if data is None or data["class_weight"] is not None:
        return None
    if len(losses) != 1 or losses[0][1] != 1.0 or shape is None:
        return None
    # An output without an axis for time has no mask.
    if len(shape) > 1 and _backend.makes_masks(_backend.network_of(model)):
        return None
    found = _targets(data)
    if found is None:
        return None
    y, weights = found
    outputs = _constant(keras.tree.flatten(model.loss)[0], y, shape)
    if outputs is None:
        return None
    outputs = np.broadcast_to(outputs, (len(y), *shape)).astype("float32")
    y_true, y_pred = ops.convert_to_tensor(y), ops.convert_to_tensor(outputs)
    # Not by `Loss.__call__`, which divides by the number of replicas.
    values = ops.convert_to_numpy(losses[0][0].call(y_true, y_pred))
    if weights is not None:
        values = values * weights.reshape(len(weights), *[1] * (values.ndim - 1))
    return float(np.mean(values))


def _targets(data: dict[str, Any]) -> tuple[Array, Array | None] | None:
    """Return targets of some examples and their weights, None if they are no arrays."""
    if data["sample_weight"] is not None:
        return None
    try:
        stream = batches_of(data["x"], data["y"], _BATCH, seed=0)
        batches = list(itertools.islice(stream(), _EXAMPLES // _BATCH))
    except ValueError:  # a generator, whose mini-batches belong to `fit`
        return None
    targets, weights = [y for _, y, _ in batches], [weight for *_, weight in batches]
    if not all(isinstance(y, np.ndarray) and y.ndim > 0 for y in targets):
        return None
    joined = None if weights[0] is None else np.concatenate(weights)
    return np.concatenate(targets), joined


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
