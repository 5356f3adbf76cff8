"""Adversarial examples by the fast gradient sign method, and accuracy under them.

Paper: Goodfellow, Shlens and Szegedy (2015), "Explaining and harnessing adversarial
examples", section 4. An attack changes each input by at most `epsilon`, in the
direction that raises the loss of its label most to first order:

    x_adv = clip(x + epsilon sign(grad_x -log p(y | x)))

A model may be an ensemble that averages probabilities; then p is the mean, and the
attack is on the ensemble as a whole.
"""

import time
import warnings

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc import metrics

COLUMNS = ("model", "epsilon", "accuracy", "nll", "entropy")


def fgsm(
    model, x, epsilon, *, y=None, from_logits=False, clip=(0.0, 1.0), batch_size=256
):
    """Adversarial examples by the fast gradient sign method.

    Computes clip(x + epsilon sign(grad_x -log p(y | x))), with the model in inference
    mode. The sign is right even where a float32 p(y | x) rounds to 1. Where it is lost
    (probabilities of exactly 0), an example stays as it is and a warning says so;
    logits have no such limit.

    Args:
        model: built `keras.Model` from `x` to class probabilities of shape (N, C), or
            to the probability of class 1 of two, of shape (N, 1).
        x: inputs, finite, N examples along the first axis.
        epsilon: largest change of an input, in units of `x`, at least 0.
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
            None: the model's own predictions, so that the attack knows no label.
        from_logits: whether the model outputs logits in place of probabilities.
        clip: smallest and largest valid input, a pair in increasing order. `x` must
            lie between them. None: no limits.
        batch_size: number of examples attacked at a time, at least 1.

    Returns:
        A float32 NumPy array shaped like `x`.

    Raises:
        ValueError: an argument is outside its range, or the model's outputs are no
            probabilities.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, activation="softmax")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> model.set_weights([np.array([[1.0, -1.0], [0.0, 0.0]]), np.zeros(2)])
    >>> fgsm(model, np.array([[0.75, 0.25]]), epsilon=0.5)
    array([[0.25, 0.25]], dtype=float32)

    Reference: Goodfellow, Shlens and Szegedy (2015), section 4.
    """
    epsilon = _validate.number("epsilon", epsilon, _validate.NOT_NEGATIVE)
    x, clip = _inputs(x, clip)
    target = _Target("Argument `model`", model, from_logits, batch_size)
    clean = target.probabilities(x)
    if y is None:
        labels = np.argmax(clean, axis=1)
    else:
        labels = metrics.as_labels("y", y, *clean.shape)
    if epsilon == 0.0:
        return x.copy()
    return _move(x, epsilon, target.signs(x, labels), clip)


def robustness_curve(
    models,
    x,
    y,
    epsilons,
    *,
    true_label=False,
    from_logits=False,
    clip=(0.0, 1.0),
    batch_size=256,
    verbose=0,
):
    """Quality of models under attacks of growing strength.

    Each model meets the adversarial examples that `fgsm` makes against itself, at each
    strength. The scores compare its predictions for these with the labels.

    Args:
        models: dict from names to models, as in `fgsm`. It may have ensembles.
        x: inputs, finite, N examples along the first axis.
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        epsilons: largest changes of an input, in units of `x`, each at least 0. 0 gives
            the scores of the clean inputs.
        true_label: whether an attack raises the loss of `y`. By default it is that of
            the model's own prediction for the clean input.
        from_logits: whether the models output logits; a bool or a dict from the names.
        clip: smallest and largest valid input, a pair in increasing order. `x` must
            lie between them. None: no limits.
        batch_size: number of examples attacked at a time, at least 1.
        verbose: 1 prints a line for each model when it is done; 0 prints nothing.

    Returns:
        A `RobustnessTable`; print it, or take its `column`, `rows` or `to_pandas()`.

    Raises:
        ValueError: an argument is outside its range, or a model's outputs are no
            probabilities.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, activation="softmax")
    >>> model = keras.Sequential([keras.Input((1,)), layer])
    >>> model.set_weights([np.array([[-1.0, 1.0]]), np.array([0.5, -0.5])])
    >>> x = np.array([[0.125], [0.375], [0.625], [0.875]])
    >>> print(robustness_curve({"small": model}, x, [0, 0, 1, 1], [0.0, 0.25, 0.5]))
    accuracy      0   0.25    0.5
    small    1.0000 0.5000 0.0000

    Reference: Goodfellow, Shlens and Szegedy (2015), section 4.
    """
    x, clip = _inputs(x, clip)
    if np.ndim(epsilons) != 1 or len(epsilons) == 0:
        raise ValueError(
            "Argument `epsilons` must be a sequence of at least one number. "
            f"Received: epsilons={epsilons!r}"
        )
    interval = _validate.NOT_NEGATIVE
    epsilons = [_validate.number("epsilons", value, interval) for value in epsilons]
    targets = _targets(models, from_logits, batch_size)
    _validate.instance("true_label", true_label, bool, "True or False")
    _validate.choice("verbose", verbose, (0, 1))
    rows = []
    for name, target in targets.items():
        begin = time.perf_counter()
        clean = target.probabilities(x)
        labels = metrics.as_labels("y", y, *clean.shape)
        attacked = labels if true_label else np.argmax(clean, axis=1)
        signs = target.signs(x, attacked) if max(epsilons) > 0.0 else None
        for epsilon in epsilons:
            probabilities = clean
            if epsilon > 0.0:
                probabilities = target.probabilities(_move(x, epsilon, signs, clip))
            accuracy = metrics.accuracy(probabilities, labels)
            nll = metrics.nll(probabilities, labels)
            entropy = float(np.mean(metrics.predictive_entropy(probabilities)))
            scores = (name, epsilon, accuracy, nll, entropy)
            rows.append(dict(zip(COLUMNS, scores, strict=True)))
        if verbose:
            seconds = time.perf_counter() - begin
            print(f"{name}: {len(epsilons)} epsilons, {len(x)} inputs, {seconds:.1f} s")
    return RobustnessTable(rows)


class RobustnessTable:
    """Scores of models under attack: a row for each model and strength.

    The columns are `model`; `epsilon`, in units of the input; `accuracy`; `nll`, the
    mean negative log-likelihood of the labels in nats; and `entropy`, the mean
    predictive entropy in nats. `print` shows the accuracies, models by strengths.

    Args:
        rows: list of at least one dict with these keys; each model has the same
            strengths, in the same order.
    """

    def __init__(self, rows):
        self.rows = list(rows)
        self._models = list(dict.fromkeys(row["model"] for row in self.rows))

    def column(self, model, name):
        """Array of a model's values of a column, in the order of the strengths.

        Args:
            model: name of the model.
            name: name of the column, such as "accuracy".

        Raises:
            ValueError: there is no such model or column.
        """
        _validate.choice("model", model, self._models)
        _validate.choice("name", name, COLUMNS)
        return np.array([row[name] for row in self.rows if row["model"] == model])

    def to_pandas(self):
        """A `pandas.DataFrame` of the rows.

        Raises:
            ImportError: pandas is not installed.
        """
        return _table.data_frame(self.rows)[list(COLUMNS)]

    def __repr__(self):
        strengths = self.column(self._models[0], "epsilon")
        width = max(len(name) for name in ["accuracy", *map(str, self._models)])
        lines = [["accuracy".ljust(width), *(f"{value:g}" for value in strengths)]]
        for model in self._models:
            scores = self.column(model, "accuracy")
            lines.append([str(model).ljust(width), *(f"{s:.4f}" for s in scores)])
        return _table.aligned(lines)


class _Target:
    """A model under attack: its probabilities and gradients, in batches of one shape.

    Each of both is compiled once, with the weights among its arguments.
    """

    def __init__(self, subject, model, from_logits, batch_size):
        _validate.instance("from_logits", from_logits, bool, "True or False")
        self._batch_size = _validate.integer("batch_size", batch_size, 1)
        if not isinstance(model, keras.Model) or not model.built:
            raise ValueError(
                f"{subject} must be a `keras.Model` that is built. Call it on a batch "
                f"of inputs, or train it, first. Received: {model!r}"
            )
        self._subject = subject
        self._from_logits = from_logits
        self._variables = model.trainable_variables + model.non_trainable_variables

        def outputs(x, values):
            mapping = zip(self._variables, values, strict=True)
            with keras.StatelessScope(state_mapping=mapping):
                result = model(x, training=False)
            if not ops.is_tensor(result) or len(result.shape) != 2:
                raise ValueError(
                    f"{subject} must output one tensor of shape (examples, classes). "
                    f"Received: {result!r}"
                )
            return ops.cast(result, "float32")

        def objective(x, labels, values):
            odds = _log_odds(outputs(x, values), labels, from_logits)
            # The second term gives outputs that ignore x a gradient: zeros.
            return ops.sum(odds) + 0.0 * ops.sum(x)

        gradient = _backend.value_and_gradient(objective)
        self._outputs = _backend.compile_function(outputs)
        self._gradient = _backend.compile_function(lambda *args: gradient(*args)[1])

    def probabilities(self, x):
        """Float64 array of shape (N, C), C >= 2."""
        outputs = self._map(self._outputs, x).astype("float64")
        if not self._from_logits:
            remedy = "If the model outputs logits, pass from_logits=True."
            subject = f"{self._subject} outputs what should be probabilities, which"
            # The looser tolerance is for a softmax in half precision.
            values = metrics.as_probabilities(subject, outputs, 1e-2, remedy)
            return values / np.sum(values, axis=1, keepdims=True)
        if not np.all(np.isfinite(outputs)):
            raise ValueError(
                f"{self._subject} must output finite logits. Check its weights. "
                f"Received: {np.sum(~np.isfinite(outputs))} outputs that are not finite"
            )
        if outputs.shape[1] == 1:
            outputs = np.concatenate([np.zeros_like(outputs), outputs], axis=1)
        powers = np.exp(outputs - np.max(outputs, axis=1, keepdims=True))
        return powers / np.sum(powers, axis=1, keepdims=True)

    def signs(self, x, labels):
        """Sign of the gradient of the labels' loss, shaped like x."""
        gradient = self._map(self._gradient, x, labels.astype("int32"))
        if not np.all(np.isfinite(gradient)):
            raise ValueError(
                f"{self._subject} must have finite gradients with respect to `x`. "
                "Check it for square roots or logarithms of 0, and give a softmax in "
                "half precision dtype='float32'. "
                f"Received: {np.sum(~np.isfinite(gradient))} that are not finite"
            )
        lost = int(np.sum(~np.any(gradient.reshape(len(x), -1), axis=1)))
        if lost:
            warnings.warn(
                f"{self._subject} has a gradient of zero for {lost} of {len(x)} "
                "examples, so the attack leaves them as they are. If the probabilities "
                "are saturated, attack logits instead, with from_logits=True.",
                stacklevel=3,
            )
        return np.sign(gradient)

    def _map(self, function, x, *more):
        """`function(x, *more, weights)`, batch after batch, as one NumPy array."""
        size = min(self._batch_size, len(x))
        values = _backend.read(self._variables)
        parts = []
        for start in range(0, len(x), size):
            # Repeats of the last row fill the last batch.
            rows = np.minimum(np.arange(start, start + size), len(x) - 1)
            arrays = [ops.convert_to_tensor(array[rows]) for array in (x, *more)]
            parts.append(ops.convert_to_numpy(function(*arrays, values)))
        return np.concatenate(parts)[: len(x)]


def _log_odds(outputs, labels, from_logits):
    """log((1 - p_y) / p_y) of each example: the objective of the attack.

    The loss -log p_y is log(1 + exp(log odds)), which rises with the log odds, so the
    signs of both gradients are the same. But where p_y rounds to 1 in float32, that of
    the loss is wrong: its part through the label's logit, 1 - p_y, comes out as 0. The
    sum of the other probabilities is known to full precision there, and the gradient of
    the log odds is of order 1 however confident the model is.
    """
    if outputs.shape[1] == 1:
        other = ops.zeros_like(outputs) if from_logits else 1.0 - outputs
        outputs = ops.concatenate([other, outputs], axis=1)
    is_label = ops.equal(ops.arange(outputs.shape[1], dtype="int32"), labels[:, None])
    own = ops.sum(ops.where(is_label, outputs, 0.0), axis=1)
    if from_logits:
        others = ops.where(is_label, -1e30, outputs)  # exp(-1e30 - anything) is 0
        return ops.logsumexp(others, axis=1) - own
    others = ops.sum(ops.where(is_label, 0.0, outputs), axis=1)
    odds = _log(others) - _log(own)
    # A sum that underflowed has lost its gradient; half of one would be noise.
    return ops.where(ops.minimum(own, others) >= metrics.SMALLEST, odds, 0.0)


def _log(probability):
    return ops.log(ops.maximum(probability, metrics.SMALLEST))


def _inputs(x, clip):
    """The inputs in float32, and the limits as a pair of float32 or None."""
    x = metrics.as_floats("Argument `x`", x, "float32")
    if x.ndim == 0 or x.size == 0:
        raise ValueError(
            "Argument `x` must have at least one example, along its first axis. "
            f"Received: shape {x.shape}"
        )
    if not np.all(np.isfinite(x)):
        raise ValueError(
            "Argument `x` must be finite. Drop or fill the examples that are not. "
            f"Received: {np.sum(~np.isfinite(x))} values that are NaN or infinite"
        )
    if clip is None:
        return x, None
    try:
        low, high = (np.float32(end) for end in clip)
    except (TypeError, ValueError):
        low = high = np.float32(np.nan)
    if not low < high:
        raise ValueError(
            "Argument `clip` must be a pair of numbers in increasing order, or None "
            f"for no limits. Received: clip={clip!r}"
        )
    if np.min(x) < low or np.max(x) > high:
        raise ValueError(
            f"Argument `x` must lie in `clip`, here [{low:g}, {high:g}]. Scale `x` to "
            "it, or pass the limits of your inputs as `clip`, or None. "
            f"Received: values between {np.min(x):g} and {np.max(x):g}"
        )
    return x, (low, high)


def _targets(models, from_logits, batch_size):
    """A target for each name."""
    if not isinstance(models, dict) or not models:
        raise ValueError(
            "Argument `models` must be a dict from names to models, with at least one, "
            f'such as {{"ensemble": model}}. Received: models={models!r}'
        )
    if not isinstance(from_logits, dict):
        from_logits = dict.fromkeys(models, from_logits)
    if from_logits.keys() != models.keys():
        raise ValueError(
            "Argument `from_logits` must be True, False, or a dict with the names of "
            f"`models`, which are {list(models)}. Received: from_logits={from_logits!r}"
        )
    targets = {}
    for name, model in models.items():
        subject = f"Argument `models[{name!r}]`"
        targets[name] = _Target(subject, model, from_logits[name], batch_size)
    return targets


def _move(x, epsilon, signs, clip):
    """x + epsilon signs, within the limits."""
    moved = x + np.float32(epsilon) * signs
    return moved if clip is None else np.clip(moved, *clip)
