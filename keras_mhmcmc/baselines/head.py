"""The last dense layer of a model: its inputs, its mode, and the width of its prior.

With the features phi of an example, the head's weights W, shape (F, C), and the prior
N(0, 1/tau) of each, the energy of the head is

    U(W) = -sum_n log p(y_n | W^T phi_n) + sum tau W^2 / 2

A layer is sampled in coordinates V in which exp(-U) is nearly N(0, I). With p_n the
probabilities at the mode W*, and tau the same in a row of W:

    (1)  W <- W - B^-1 grad U(W),  B = b sum_n phi_n phi_n^T + diag(tau)
    (2)  S = sum_n w_n phi_n phi_n^T + diag(tau) = R R^T,  w_n = mean_c p_nc (1 - p_nc)
    (3)  W = W* + R^-T V,  psi_n = R^-1 phi_n,  W^T phi_n = W*^T phi_n + V^T psi_n

(1) finds W*. b = 1/2 for a softmax and 1/4 for a sigmoid bound the curvature of log p,
so that no step raises U (Boehning 1992); momentum makes it faster. S is the Hessian of
U at W*, averaged over the classes, so the posterior of V has about the width 1.

With prior="auto" the standard deviation of the bias is s, and that of the kernel s over
the root mean square of the features. Each s of `WIDTHS` predicts labels that it has not
seen: by five-fold cross-validation, or a fifth of many labels. The mode takes the s of
the best prediction. Samples of few labels are scored as samples: a short Hamiltonian
Monte Carlo run in V draws them for each fold. Their predictions are then a mixture over
widths, with the weights that predict best (4), found by EM:

    (4)  max_w sum_n log sum_s w_s p_s(y_n | other folds),  sum_s w_s = 1

Reference: Yao, Vehtari, Simpson and Gelman (2018), "Using stacking to average Bayesian
predictive distributions", section 3.1.
"""

import dataclasses
import math
from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from typing import Literal

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc import _inputs
from keras_mhmcmc import _validate
from keras_mhmcmc._layer_calls import called
from keras_mhmcmc._layer_calls import noted
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.ensemble import ensemble_of
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.checks import check_built
from keras_mhmcmc.fit import compiled_loss
from keras_mhmcmc.priors import Gaussian
from keras_mhmcmc.priors import warn_of_regularizers

Floats = npt.NDArray[np.float64]
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_FOLDS, _FEW = 5, 500  # of at most so many labels each fold is left out once
_MOST_PRODUCTS = 2_000_000  # labels times features times classes, of short runs
_MOST_STEPS = 2000  # of (1)
# Of a short run for a width: chains, warm-up, further steps, and steps of a path.
_CHAINS, _WARM_UP, _DRAWS, _PATH = 24, 12, 18, 10
_ACCEPTANCE = 0.8
_EM_STEPS, _LEAST_WEIGHT = 500, 0.1


@dataclass(frozen=True)
class Head:
    """The last dense layer: outputs = link(features @ kernel + bias)."""

    layer: keras.layers.Dense
    features: Floats  # (N, F), and a last column of ones if the layer has a bias
    values: Floats  # kernel and bias, (F, C) or (F + 1, C)
    link: str  # "linear", "softmax" or "sigmoid"
    targets: Any = None  # of the N examples, as they are given

    @property
    def variables(self) -> list[keras.Variable]:
        layer = self.layer
        return [layer.kernel, layer.bias] if layer.use_bias else [layer.kernel]

    def precisions(self, of_variables: list[float]) -> Floats:
        """Return an array like `values`, given a number for each of `variables`."""
        result = np.full_like(self.values, of_variables[0])
        if self.layer.use_bias:
            result[-1] = of_variables[1]
        return result

    def ensemble(
        self,
        model: keras.Model,
        draws: Floats,
        weights: Floats,
        is_classifier: bool,
        chunk: int | None,
    ) -> Ensemble:
        """Return `model` with draws of its last layer, like `values`, as members."""
        activation = None
        if is_classifier:  # of which logits become probabilities
            of_logits = "sigmoid" if self.values.shape[1] == 1 else "softmax"
            activation = of_logits if self.link == "linear" else "linear"
        parts = [draws[:, :-1], draws[:, -1]] if self.layer.use_bias else [draws]
        drawn = dict(zip(map(id, self.variables), parts, strict=True))
        stacked = []
        for variable in model.weights:
            value = ops.convert_to_numpy(variable)
            if id(variable) in drawn:
                stacked.append(drawn[id(variable)].astype(value.dtype))
            else:
                stacked.append(np.broadcast_to(value, (len(draws), *value.shape)))
        return ensemble_of(model, stacked, weights, activation, chunk)


def head_of(model: keras.Model, x: Any, batch_size: int, y: Any = None) -> Head:
    """Return the last dense layer of a model, with its inputs for the examples `x`."""
    check_built("Argument `model`", model)
    batch_size = _validate.integer("batch_size", batch_size, 1)
    first, x = _data.peeked(x, y, needs_targets=True)
    first = _inputs.as_model_inputs("x", first, model)
    _inputs.check_taken(first, model)
    inner = _backend.inner_layers(model)
    dense = [layer for layer in inner if isinstance(layer, keras.layers.Dense)]
    # A model may list the layer that it calls last before others.
    with called(dense) as calls:
        model(_inputs.tensors(first, slice(0, 1)), training=False)
    if not calls:
        raise _refusal("no `Dense` layer")
    layer = calls[-1]
    # With LoRA or quantisation, `kernel` is no weight of the model.
    if id(layer.kernel) not in {id(variable) for variable in model.weights}:
        raise _refusal(f"{len(dense)} `Dense` layers, the last with LoRA or quantised")
    if layer.activation not in [getattr(keras.activations, name) for name in _LINKS]:
        raise _refusal(
            f"a last `Dense` layer with the activation {layer.activation.__name__!r}"
        )
    seen: list[Any] = []

    def features_and_outputs(x: Any) -> Any:
        parts = []
        x = _inputs.as_model_inputs("x", x, model)
        for batch in _data.batches(x, batch_size=batch_size):
            found = model(_inputs.tensors(batch.x, slice(None)), training=False)
            if keras.tree.is_nested(found) or len(seen) != 1 or len(seen[0].shape) != 2:
                raise _refusal(
                    "a model with several outputs, or whose last `Dense` layer is not "
                    "called once on features of shape (N, F)"
                )
            parts.append((_float64(seen.pop()), _float64(found)))
        return _data.joined(parts)

    with noted(layer, seen.append):
        (inputs, outputs), targets = _data.predicted(features_and_outputs, x, y)
    if not np.isfinite(inputs).all():
        raise ValueError(
            "Argument `x` must give finite features before the last layer. Scale it as "
            "in training. "
            f"Received: {np.sum(~np.isfinite(inputs))} features that are not finite"
        )
    values = _float64(layer.kernel)
    if layer.use_bias:
        inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
        values = np.concatenate([values, _float64(layer.bias)[None]])
    link = _link(inputs @ values, outputs)
    head = Head(layer, inputs, values, link, targets)
    warn_of_regularizers(head.variables)
    return head


def checked_labels(model: keras.Model, head: Head, hint: str) -> Array:
    """Return the labels of a classifier, shape (N,), or raise a `ValueError`."""
    classes = head.values.shape[1]
    refused = ""
    if head.link != "linear" and (head.link == "sigmoid") != (classes == 1):
        refused = f"{head.link} of {classes} units"
    for loss in keras.tree.flatten(model.loss):
        name = compiled_loss.name_of(loss)
        if name in compiled_loss.OF_REGRESSIONS:
            raise ValueError(
                "Argument `model` must be compiled with the loss of a classification, "
                f"such as a cross-entropy, or not at all.{hint} Received: a model "
                f"with the loss {name!r}"
            )
        if name == compiled_loss.OF_LABELS and classes > 1:
            refused = f"binary cross-entropy of {classes} units"
    if refused:
        raise ValueError(
            "Argument `model` must have a softmax, a sigmoid of one unit, or logits. "
            "For several labels of an example use `mh.swag` or a sampler. Received: a "
            f"{refused}"
        )
    return as_labels("y", head.targets, len(head.features), max(classes, 2), hint)


def softmax(logits: Floats) -> Floats:
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def sigmoid(logits: Floats) -> Floats:
    """Return the probabilities of class 1, without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * logits))


_LINKS: dict[str, Callable[[Floats], Floats]] = {
    "linear": np.asarray,
    "softmax": softmax,
    "sigmoid": sigmoid,
}


def probabilities(logits: Floats) -> Floats:
    """Return the probabilities of logits (..., C); of class 1 if C is 1."""
    return sigmoid(logits) if logits.shape[-1] == 1 else softmax(logits)


def _link(logits: Floats, outputs: Floats) -> str:
    """Return which function, of this layer or one after it, makes the outputs."""
    # Of each example by itself: a large output must not hide the errors of others.
    scale = np.abs(outputs).max(axis=-1)
    scale = np.maximum(scale, min(float(scale.max()), 1.0))
    if logits.shape == outputs.shape:
        for name, link in _LINKS.items():
            errors = np.abs(link(logits) - outputs).max(axis=-1) / scale
            if errors.max() <= 0.02:  # half precision has 1%
                return name
    raise _refusal("a model whose outputs differ from those of its last `Dense` layer")


def _float64(value: Any) -> Array:
    return np.asarray(ops.convert_to_numpy(value)).astype("float64")


def _refusal(received: str) -> ValueError:
    return ValueError(
        "Argument `model` must end in a `Dense` layer, whose inputs are features of "
        "shape (N, F) and whose activation is linear, softmax or sigmoid. For a model "
        f"of another kind use `mh.swag` or a sampler. Received: {received}"
    )


def check_prior(prior: Any) -> None:
    """Raise an error before features are computed."""
    if not isinstance(prior, str) or prior != "auto":
        hint = 'an `mh.priors.Gaussian`, or "auto" for a classification'
        _validate.instance("prior", prior, Gaussian, hint)


def of_prior(
    head: Head,
    prior: Gaussian | Literal["auto"],
    labels: npt.NDArray[np.int_],
    seed: int,
    of_samples: bool,
) -> list[tuple[Floats, float]]:
    """Return pairs of tau, (F, C), and its weight: of the prior, or of each width."""
    if isinstance(prior, Gaussian):
        return [(head.precisions(prior.bind(head.variables).precisions), 1.0)]
    has_bias = head.layer.use_bias
    inputs = head.features[:, :-1] if has_bias else head.features
    size = max(float(np.sqrt(np.mean(np.square(inputs)))), 1e-30)
    unit = np.full(head.features.shape[1], 1.0 / size)
    unit[len(unit) - has_bias :] = 1.0
    size_of_run = len(labels) * min(head.features.shape) * head.values.shape[1]
    of_samples &= len(labels) <= _FEW and size_of_run <= _MOST_PRODUCTS
    scores = left_out_scores(head.features * unit, head, labels, seed, of_samples)
    best = np.arange(len(WIDTHS)) == scores.sum(axis=1).argmax()
    weights = stacked(scores) if of_samples else best
    return [
        (head.precisions([(size / width) ** 2, width**-2.0]), float(weight))
        for width, weight in zip(WIDTHS, weights, strict=True)
        if weight > 0.0
    ]


def stacked(scores: Floats) -> Floats:
    """Return the weights of (4) for scores (widths, labels); small ones are 0."""
    kept = np.arange(len(scores))
    for _ in range(2):  # again without the small ones
        likelihoods = np.exp(scores[kept] - scores[kept].max(axis=0))
        found: Floats = np.full(len(kept), 1.0 / len(kept))
        for _ in range(_EM_STEPS):
            shares = found[:, None] * likelihoods
            found = (shares / shares.sum(axis=0)).mean(axis=1)
        weights = np.zeros(len(scores))
        weights[kept] = np.where(found < _LEAST_WEIGHT, 0.0, found)
        kept = np.flatnonzero(weights)
    return weights / weights.sum()


def left_out_scores(
    phi: Floats,
    head: Head,
    labels: npt.NDArray[np.int_],
    seed: int,
    of_samples: bool,
) -> Floats:
    """Return log p of labels that the layer has not seen, or 0, (widths, labels)."""
    if phi.shape[1] > len(phi):  # the span of the examples is enough
        phi = phi @ np.linalg.qr(phi.T)[0]
    rng = np.random.default_rng(seed)
    folds = np.array_split(rng.permutation(len(phi)), _FOLDS)
    folds = folds if len(phi) <= _FEW else folds[:1]
    scores = np.zeros((len(WIDTHS), len(phi)))
    for fold in folds:
        kept = np.setdiff1d(np.arange(len(phi)), fold)
        start = np.zeros((phi.shape[1], head.values.shape[1]))
        for row, width in enumerate(WIDTHS):
            part = dataclasses.replace(head, features=phi[kept], values=start)
            tau = np.full_like(start, width**-2.0)
            targets = one_hot(labels[fold], start.shape[1])
            if of_samples:
                posterior = whitened(part, tau, labels[kept])
                start, runs = posterior.mode, _short_run(posterior, labels[kept], rng)
            else:
                start = posterior_mode(part, tau, labels[kept], tolerance=1e-2)
                runs = iter([start[None]])
            found = np.concatenate([-losses(phi[fold] @ w, targets) for w in runs])
            scores[row, fold] = np.logaddexp.reduce(found) - math.log(len(found))
    return scores


@dataclass(frozen=True)
class WhitenedHead:
    """The coordinates of (3)."""

    mode: Floats  # W*, (F, C)
    factor: Floats  # R, (F, F)
    tau: Floats  # (F, C)
    features: Floats  # psi, (N, F)
    logits: Floats  # W*^T phi, (N, C)

    def weights(self, positions: Floats) -> Floats:
        """Return W for positions V of shape (..., F, C)."""
        return self.mode + np.linalg.solve(self.factor.T, positions)


def whitened(head: Head, tau: Floats, labels: npt.NDArray[np.int_]) -> WhitenedHead:
    """Return the coordinates of (3) of a posterior; the rows of `tau` are constant."""
    phi = head.features
    mode = posterior_mode(head, tau, labels)
    p = probabilities(phi @ mode)
    w = (p * (1.0 - p)).mean(axis=1)
    factor = np.linalg.cholesky((phi * w[:, None]).T @ phi + np.diag(tau[:, 0]))
    psi = np.linalg.solve(factor, phi.T).T.astype("float64")
    return WhitenedHead(mode, factor, tau, psi, phi @ mode)


def one_hot(labels: npt.NDArray[np.int_], classes: int) -> Floats:
    """Return the targets of labels, (N, C); of class 1 if C is 1."""
    rows = labels[:, None] if classes == 1 else np.eye(classes)[labels]
    return rows.astype("float64")


def posterior_mode(
    head: Head, tau: Floats, labels: npt.NDArray[np.int_], tolerance: float = 1e-3
) -> Floats:
    """Return W* by (1): the gradient's length in the metric of B is `tolerance`.

    It is a distance in posterior standard deviations, where b bounds them tightly.
    """
    phi, classes = head.features, head.values.shape[1]
    targets = one_hot(labels, classes)
    bound = 0.25 if classes == 1 else 0.5
    inverse = np.linalg.inv(bound * phi.T @ phi + np.diag(tau[:, 0]))
    # Weights that were not trained on these features may be worse than none.
    starts = [head.values, np.zeros_like(head.values)]
    current = point = min(starts, key=lambda w: _energy(phi @ w, targets, tau, w))
    momentum = 1.0
    for _ in range(_MOST_STEPS):
        gradient = phi.T @ (probabilities(phi @ point) - targets) + tau * point
        step = inverse @ gradient
        length = math.sqrt(max(float((step * gradient).sum()), 0.0))
        if length < tolerance:
            break
        new = point - step
        if float((gradient * (new - current)).sum()) > 0.0:
            momentum = 1.0  # U would rise: begin again
        following = (1.0 + math.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        point = new + (momentum - 1.0) / following * (new - current)
        current, momentum = new, following
    else:
        warn(
            f"The mode of the last layer's posterior was not found in {_MOST_STEPS} "
            f"steps: the gradient has the length {length:.3g} instead of "
            f"{tolerance:.3g}, with features as large as {np.abs(phi).max():.3g}. "
            "Scale them to about 1, for example by `keras.layers.LayerNormalization`, "
            "or pass a narrower `prior`."
        )
    return point


def _energy(logits: Floats, targets: Floats, tau: Floats, w: Floats) -> Floats:
    """Return U(W) less the constant of the prior, nats, of W of shape (..., F, C)."""
    size = 0.5 * (tau * np.square(w)).sum(axis=(-2, -1))
    energy: Floats = losses(logits, targets).sum(axis=-1) + size
    return energy


def losses(logits: Floats, targets: Floats) -> Floats:
    """Return -log p of targets (N, C) for logits of shape (..., N, C), nats."""
    if logits.shape[-1] == 1:
        norms = np.logaddexp(0.0, logits)[..., 0]
    else:
        top = logits.max(axis=-1)
        norms = top + np.log(np.exp(logits - top[..., None]).sum(axis=-1))
    result: Floats = norms - (targets * logits).sum(axis=-1)
    return result


def _short_run(
    posterior: WhitenedHead, labels: npt.NDArray[np.int_], rng: np.random.Generator
) -> Iterator[Floats]:
    """Draw W by Hamiltonian Monte Carlo in V, shape (chains, F, C) at a time."""
    psi, tau, mode = posterior.features, posterior.tau, posterior.mode
    targets = one_hot(labels, mode.shape[1])
    back = np.linalg.inv(posterior.factor.T)

    def energy(v: Floats) -> Floats:
        return _energy(posterior.logits + psi @ v, targets, tau, mode + back @ v)

    def slope(v: Floats) -> Floats:
        misses = probabilities(posterior.logits + psi @ v) - targets
        result: Floats = psi.T @ misses + back.T @ (tau * (mode + back @ v))
        return result

    v = rng.standard_normal((_CHAINS, *mode.shape))
    before, step = energy(v), 0.3
    for t in range(_WARM_UP + _DRAWS):
        start = rng.standard_normal(v.shape)
        size = step * rng.uniform(0.8, 1.2)
        moved, momentum = v, start - 0.5 * size * slope(v)
        for k in range(_PATH):
            moved = moved + size * momentum
            momentum = momentum - size * (1.0 if k < _PATH - 1 else 0.5) * slope(moved)
        after = energy(moved)
        kinetic = 0.5 * (np.square(start) - np.square(momentum)).sum(axis=(1, 2))
        log_ratio = np.nan_to_num(before - after + kinetic, nan=-np.inf)
        accepted = np.log(rng.uniform(size=_CHAINS)) < log_ratio
        v = np.where(accepted[:, None, None], moved, v)
        before = np.where(accepted, after, before)
        if t < _WARM_UP:
            rate = np.exp(np.minimum(log_ratio, 0.0)).mean()
            step *= math.exp(0.5 * (rate - _ACCEPTANCE))
        else:
            yield mode + back @ v
