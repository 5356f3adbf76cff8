"""Advice on the learning rate, from short runs of a model that leave no trace in it."""

import contextlib
import itertools
import math
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

import keras
import numpy as np
from keras import ops
from keras.optimizers import LossScaleOptimizer

from keras_mhmcmc import _data
from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._types import Array
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.samplers.amagold import AMAGOLD
from keras_mhmcmc.samplers.parts.rate_adaptation import LOW

Optimizer: TypeAlias = keras.optimizers.Optimizer

RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_BATCH_SIZE = 32  # the default of `fit`
# The energy must fall by this share of the largest fall. Without it, a network that a
# large step has turned off would pass: it predicts the frequencies of the classes, and
# has a lower loss than first weights.
_SHARE = 0.5
_ERRORS = 3.0  # the fall must be so many standard errors of the energy at the start
_STARTS = 8  # mini-batches that give the energy at the start
# Of `keras.Model`: what belongs to an optimizer.
_BORROWED = ("optimizer", "train_function", "steps_per_execution")

# Verdicts.
PASSES = "passes"
TOO_SLOW = "too slow"
FALLS_TOO_LITTLE = "falls too little"
DOES_NOT_FALL = "does not fall"
REJECTS = "moves rejected"
NOT_FINITE = "not finite"

_HEADS = {
    "learning_rate": "learning rate",
    "start": "start",
    "end": "end",
    "acceptance": "accepted",
    "verdict": "verdict",
}
_LARGEST_PLAIN = 1e5  # a larger number is printed with an exponent


def suggest_learning_rate(
    model: keras.Model,
    x: Any,
    y: Any = None,
    optimizer: Optimizer | str | None = None,
    *,
    rates: Sequence[float] = RATES,
    steps: int = 200,
    batch_size: int | None = None,
    seed: int = 0,
) -> "LearningRateTable":
    """Run a model shortly at several learning rates, and suggest the largest good one.

    A rate passes if all losses are finite and the energy falls at least half as far as
    at the best rate. For a Metropolis-Hastings sampler, a quarter of the forward moves
    must also be accepted. The largest rate that passes is an upper edge: begin there or
    below. A short run does not show how well the samples predict. Print the result, or
    use its `rate`, which is None if no rate passes, and its `advice`.

    Each run begins with the weights of the model and sees the same mini-batches of
    arrays. The second half of its steps is judged. A Metropolis-Hastings sampler makes
    its `warm_up` before, at the same rate, and does not adapt the rate. A learning rate
    schedule is replaced by constant rates. Afterwards the model, its optimizer, its
    metrics and the random generators of its layers are as before, but a model that is
    not built yet is built, and on PyTorch a `Dropout` layer without a seed draws from
    the global generator.

    Args:
        model: compiled `keras.Model`, not trained yet. Its loss is used.
        x: arrays of N examples, shape (N, ...), or a list or dict of them; or a data
            set of batches (x, y) that can be read again.
        y: arrays of the N targets. Defaults to None, for a data set.
        optimizer: a sampler, a Keras optimizer or its name, which stays unchanged. Its
            own learning rate is not used. Defaults to None, the model's own optimizer.
        rates: learning rates to try, each greater than 0. Defaults to ten rates from
            0.001 to 1.
        steps: steps of a run after the warm-up, at least 4. Defaults to 200.
        batch_size: examples in a mini-batch of arrays. Defaults to None, the
            `batch_size` of the sampler if it has one, otherwise 32.
        seed: integer in [0, 2**31) that orders the examples, and makes the noise of a
            sampler without a seed. Defaults to 0.

    Raises:
        ValueError: the model is not compiled, an argument is outside its range, the
            compiled loss has no targets, or `x` is a generator.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> x = np.linspace(-1.0, 1.0, 32)[:, None]
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mean_squared_error")
    >>> rates = suggest_learning_rate(model, x, 3.0 * x, rates=[0.5, 10.0], steps=40)
    >>> rates.rate
    0.5
    >>> sampler = mh.SGHMC(rates.rate)

    Reference: Smith (2017), "Cyclical learning rates for training neural networks",
    section 3.3, for a short run over rates. The rule is this package's own.
    """
    _validate.instance("model", model, keras.Model, "a compiled `keras.Model`")
    if isinstance(model, StackedModel):
        raise ValueError(
            "Argument `model` must be a single network. Compile the network itself "
            "with the same loss: its rate suits each chain. "
            f"Received: model={_validate.shown(model)}"
        )
    if not model.compiled:
        raise ValueError(
            "Argument `model` must be compiled, since its loss is what has to fall. "
            "Call `model.compile(optimizer, loss)` first. "
            f"Received: model={_validate.shown(model)}"
        )
    own = model.optimizer
    given = _checked_optimizer(own if optimizer is None else optimizer)
    inner = given.inner_optimizer if isinstance(given, LossScaleOptimizer) else given
    listed = list(rates) if isinstance(rates, list | tuple | np.ndarray) else []
    if not listed:
        raise ValueError(
            "Argument `rates` must be a list of at least one learning rate, such as "
            f"[0.01, 0.03, 0.1, 0.3]. Received: rates={_validate.shown(rates)}"
        )
    tried = sorted({_validate.number("rates", r, _validate.POSITIVE) for r in listed})
    steps = _validate.integer("steps", steps, 4)
    batch_size = _batch_size(batch_size, inner)
    seed = _validate.seed(seed)
    stream = _data.stream_of(x, y, batch_size, seed)
    first, targets, _ = next(stream())
    if targets is None and model.loss is not None:
        raise ValueError(
            "Argument `y` must be the targets of the compiled loss. Pass them apart "
            "from `x`, of which a tuple or list is several inputs. Received: "
            f"y={_validate.shown(y)}, loss={model.loss}"
        )
    if not model.built:
        model(first)
    trial = _at_rate(inner, tried[0], seed)
    if isinstance(trial, Sampler):
        trial.find_train_size(model, x)
    elif LossScaleOptimizer in (type(given), type(own)):  # mixed_float16
        trial = LossScaleOptimizer(trial)
    with _borrowed(model, trial):
        trials = _Trials(model, trial, stream, steps)
        start = trials.start()
        outcomes = [trials.run(rate) for rate in tried]
    measure = "energy per example" if isinstance(inner, Sampler) else "loss"
    return LearningRateTable(
        _rows(tried, start, outcomes), type(inner).__name__, measure
    )


class LearningRateTable(_table.ColumnTable):
    """Short runs at several learning rates, with a row for each, the lowest first.

    | column | holds |
    |---|---|
    | `learning_rate` | the rate |
    | `start` | energy per example of the first weights |
    | `end` | mean energy per example of the judged steps |
    | `acceptance` | share of accepted forward moves, NaN if none can be rejected |
    | `verdict` | "passes", or why the rate does not pass |

    The energy per example is the mean loss. A sampler adds minus the log prior over
    `train_size`, up to a constant. A Metropolis-Hastings sampler reports the states of
    its chain. The verdicts are "passes", "too slow" (below the best rate, the energy
    fell less than half as far), "falls too little" (the same above the best rate),
    "does not fall", "moves rejected" and "not finite".
    """

    def __init__(
        self, rows: Sequence[_table.Row], optimizer: str, measure: str
    ) -> None:
        self.rows = list(rows)
        self.optimizer = optimizer
        self.measure = measure

    @property
    def rate(self) -> float | None:
        """The suggestion: the largest rate that passes. None if no rate passes."""
        rates = self.column("learning_rate")[self.column("verdict") == PASSES]
        return float(rates.max()) if rates.size else None

    @property
    def advice(self) -> str:
        """What to do, in a sentence or two."""
        verdicts = self.column("verdict")
        if self.rate is not None:
            advice = f"Begin at {self.rate:g} or below, the largest rate that passes."
            if self.rate == self.rows[-1]["learning_rate"]:
                advice += " No larger one was tried: add larger `rates`."
            return advice
        if REJECTS in verdicts:
            remedy = "Add smaller `rates`, or raise the temperature."
        elif DOES_NOT_FALL in verdicts:
            remedy = (
                "Raise `steps`, add other `rates`, or begin with weights that are not "
                "trained yet."
            )
        else:
            remedy = "Add smaller `rates`, and look for such values in the data."
        found = ", ".join(dict.fromkeys(verdicts))
        return f"No rate passes ({found}). {remedy}"

    def _printed(self) -> _table.Printed:
        rejects = not np.isnan(self.column("acceptance")).all()
        heads = {k: head for k, head in _HEADS.items() if rejects or k != "acceptance"}
        lines = [list(heads.values())]
        rates = [f"{row['learning_rate']:g}" for row in self.rows]
        width = max(map(len, [*rates, lines[0][0]]))
        for row, rate in zip(self.rows, rates, strict=True):
            cells = [_shown(row[name]) for name in list(heads)[1:-1]]
            lines.append([rate.rjust(width), *cells, row["verdict"]])
        caption = f"{self.optimizer}, {self.measure} before and after a short run"
        return _table.Printed(lines, above=caption, below=[self.advice])


def _shown(value: float) -> str:
    return f"{value:.2e}" if abs(value) >= _LARGEST_PLAIN else _table.number(value)


class _Outcome(NamedTuple):
    """What a run showed in the second half of its judged steps."""

    energy: float  # mean, per example: the loss, with the prior for a sampler
    acceptance: float  # share of (forward) moves that were accepted, or NaN
    is_finite: bool


def _rows(
    rates: Sequence[float], start: Array, outcomes: Sequence[_Outcome]
) -> list[_table.Row]:
    """Return the rows of the table, from the energies of the first weights on."""
    before = float(np.mean(start))
    noise = float(np.std(start)) / math.sqrt(len(start))
    falls = [before - o.energy if o.is_finite else -math.inf for o in outcomes]
    best = int(np.argmax(falls))
    rows = []
    for place, (rate, outcome) in enumerate(zip(rates, outcomes, strict=True)):
        if not outcome.is_finite:
            verdict = NOT_FINITE
        elif not falls[best] > _ERRORS * noise or falls[place] <= 0.0:
            verdict = DOES_NOT_FALL
        elif falls[place] < _SHARE * falls[best]:
            verdict = TOO_SLOW if place < best else FALLS_TOO_LITTLE
        elif outcome.acceptance < LOW:
            verdict = REJECTS
        else:
            verdict = PASSES
        values = rate, before, outcome.energy, outcome.acceptance, verdict
        rows.append(dict(zip(_HEADS, values, strict=True)))
    return rows


def _at_rate(optimizer: Optimizer, rate: float, seed: int) -> Optimizer:
    """Return a new optimizer with the same arguments, but for the learning rate."""
    config = optimizer.get_config() | {"learning_rate": rate}
    if isinstance(optimizer, Sampler):
        if config.get("seed") is None:
            config["seed"] = seed
        if "rate_adaptation" in config:
            config["rate_adaptation"] = False
    return type(optimizer).from_config(config)


@contextlib.contextmanager
def _borrowed(model: keras.Model, optimizer: Optimizer) -> Iterator[None]:
    """Let `optimizer` train the model in a scope. Then put back what was there."""
    own = {name: getattr(model, name) for name in _BORROWED}
    before = _kept([*model.variables, *model.metrics_variables])
    for name, value in zip(_BORROWED, (optimizer, None, 1), strict=True):
        # Not by assignment: TensorFlow would track the optimizer in checkpoints.
        object.__setattr__(model, name, value)
    try:
        yield
    finally:
        for name, value in own.items():
            object.__setattr__(model, name, value)
        model.reset_metrics()  # those that the first step built
        _assign(before)


class _Trials:
    """Runs of a `_borrowed` model at several rates, with one optimizer: one compile."""

    def __init__(
        self,
        model: keras.Model,
        optimizer: Optimizer,
        stream: Callable[[], Iterator[_data.Batch]],
        steps: int,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._stream, self._steps = stream, steps
        self._sampler = optimizer if isinstance(optimizer, Sampler) else None
        counts = optimizer.algorithm.traits.counts if self._sampler else ()
        self._rejects = "proposed" in counts
        optimizer.build(model.trainable_variables)
        self._first = _kept([*model.variables, *optimizer.variables])

    def start(self) -> Array:
        """Return the energies of the first weights on some mini-batches."""
        energies = []
        for batch in itertools.islice(self._stream(), _STARTS):
            _assign(self._first)
            energies.append(self._outcome([self._step(batch)]).energy)
        return np.array(energies)

    def run(self, rate: float) -> _Outcome:
        _assign(self._first)
        self._optimizer.learning_rate = rate
        judged = self._steps // 2
        unjudged = self._steps - judged
        if self._sampler is not None:
            unjudged += self._sampler.warm_up
        losses: list[float] = []
        for count, batch in enumerate(self._stream()):
            if count == unjudged:
                losses = []
                if self._sampler is not None:
                    self._sampler.reset_diagnostics()
            losses.append(self._step(batch))
            if self._has_failed(losses) or count + 1 == unjudged + judged:
                break
        return self._outcome(losses if count >= unjudged else losses[-1:])

    def _step(self, batch: _data.Batch) -> float:
        """Make a step, and return the loss before it."""
        self._model.reset_metrics()  # Keras 3.10 would return a mean
        return float(self._model.train_on_batch(*batch, return_dict=True)["loss"])

    def _has_failed(self, losses: list[float]) -> bool:
        return not self._rejects and not math.isfinite(losses[-1])

    def _outcome(self, losses: list[float]) -> _Outcome:
        sampler, energy, acceptance = self._sampler, float(np.mean(losses)), math.nan
        is_finite = not self._has_failed(losses)
        if sampler is not None:
            seen = sampler.diagnostics()
            if "energy" in seen:
                energy = seen["energy"] / sampler.train_size
            acceptance = seen.get("acceptance", math.nan)
            acceptance = seen.get("forward_acceptance", acceptance)
            is_finite = is_finite and not sampler.lost_chains().any()
        return _Outcome(energy, acceptance, is_finite and math.isfinite(energy))


def _kept(variables: Sequence[keras.Variable]) -> list[tuple[keras.Variable, Array]]:
    """Return copies of the values: the next step may overwrite their memory."""
    return [(v, np.array(ops.convert_to_numpy(v))) for v in variables]


def _assign(kept: Sequence[tuple[keras.Variable, Array]]) -> None:
    for variable, value in kept:
        variable.assign(value)


def _checked_optimizer(optimizer: Any) -> Optimizer:
    try:
        found = keras.optimizers.get(optimizer)
    except (KeyError, TypeError, ValueError):
        found = None
    if found is None:
        raise ValueError(
            "Argument `optimizer` must be a sampler such as `mh.SGHMC(...)`, a Keras "
            "optimizer, the name of one, or None for the optimizer that the model was "
            f"compiled with. Received: optimizer={_validate.shown(optimizer)}"
        )
    if isinstance(found, AMAGOLD):
        raise ValueError(
            "Argument `optimizer` must not be `mh.AMAGOLD`: a short run makes no test "
            "of a path. Ask for `mh.SGHMC(...)`, whose learning rate means the same, "
            "and lower it until `acceptance` in the logs of `fit` is above 0.3. "
            f"Received: optimizer={optimizer!r}"
        )
    return found


def _batch_size(batch_size: int | None, optimizer: Optimizer) -> int:
    given = optimizer.batch_size if isinstance(optimizer, Sampler) else None
    if batch_size is None:
        return given or _BATCH_SIZE
    batch_size = _validate.integer("batch_size", batch_size, 1)
    if given is not None and given != batch_size:
        raise ValueError(
            "Argument `batch_size` must be None, or that of the sampler, whose "
            f"temperature follows from it: {given}. Received: batch_size={batch_size}"
        )
    return batch_size
