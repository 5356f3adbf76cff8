"""Estimators of scikit-learn that fit a `BayesianEnsemble`."""

from collections.abc import Sequence
from typing import Any
from typing import Self

import keras
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.base import ClassifierMixin
from sklearn.base import RegressorMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from sklearn.utils.validation import check_random_state
from sklearn.utils.validation import column_or_1d
from sklearn.utils.validation import validate_data

from keras_mhmcmc._types import Array
from keras_mhmcmc.bayesian import BayesianEnsemble
from keras_mhmcmc.evaluation import predict_distribution
from keras_mhmcmc.evaluation.mixture import PredictiveMixture
from keras_mhmcmc.losses import GaussianNLL

__all__ = ["BayesianClassifier", "BayesianRegressor"]


class _Estimator(BaseEstimator):
    """Dense layers, trained and sampled from by a `BayesianEnsemble`."""

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] = (16, 16),
        activation: str = "relu",
        *,
        num_members: int | None = None,
        sampler: Any = "auto",
        sampling: float | str = "auto",
        epochs: int | None = None,
        batch_size: int = 32,
        validation_split: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.num_members = num_members
        self.sampler = sampler
        self.sampling = sampling
        self.epochs = epochs
        self.batch_size = batch_size
        self.validation_split = validation_split
        self.random_state = random_state
        self.verbose = verbose

    def _fitted(self, X: Array, y: Array, outputs: int, loss: Any) -> Self:
        """Fit the ensemble to standardised inputs."""
        self._inputs = StandardScaler().fit(X)
        random = check_random_state(self.random_state)

        def dense(units: int, activation: str | None) -> keras.layers.Dense:
            initial = keras.initializers.GlorotUniform(random.randint(2**31))
            return keras.layers.Dense(units, activation, kernel_initializer=initial)

        hidden = [dense(units, self.activation) for units in self.hidden_layer_sizes]
        network = keras.Sequential(
            [keras.Input(X.shape[1:]), *hidden, dense(outputs, None)]
        )
        seed = random.randint(2**31)
        self.ensemble_ = BayesianEnsemble(
            network, self.num_members, sampler=self.sampler, seed=seed
        )
        self.ensemble_.compile(loss=loss)
        self.report_ = self.ensemble_.fit(
            self._scaled(X),
            y,
            epochs=self.epochs,
            batch_size=self.batch_size,
            validation_split=self.validation_split,
            sampling=self.sampling,
            verbose=self.verbose,
        )
        return self

    def _checked(self, X: Any) -> Array:
        """Return new inputs, standardised."""
        check_is_fitted(self)
        return self._scaled(validate_data(self, X, dtype="float64", reset=False))

    def _scaled(self, X: Array) -> Array:
        return self._inputs.transform(X).astype("float32")


class BayesianRegressor(RegressorMixin, _Estimator):
    """Regress with an ensemble from the posterior of a network with dense layers.

    The network predicts mean and deviation of each target. Inputs and targets are
    standardised. All else, the law that is sampled included, is as in
    `mh.BayesianEnsemble` with its defaults.

    Args:
        hidden_layer_sizes: units of the hidden layers. Defaults to (16, 16).
        activation: of these layers. Defaults to "relu".
        num_members: trained networks, and chains, as for `mh.BayesianEnsemble`.
            Defaults to None.
        sampler: as for `mh.BayesianEnsemble`. Defaults to "auto".
        sampling: length of the chains, as for `mh.BayesianEnsemble.fit`; 0 is a deep
            ensemble. Defaults to "auto".
        epochs: the most epochs of a member. Defaults to None: 100, and at least 6,000
            mini-batches.
        batch_size: examples of a mini-batch. Defaults to 32.
        validation_split: part that is held out to choose by. Defaults to None: 0.1.
        random_state: integer, generator or None, as usual in scikit-learn.
        verbose: 0 is silent. Defaults to 0.

    After `fit`, `ensemble_` is the `mh.BayesianEnsemble`, a Keras model that takes
    standardised inputs, and `report_` tells what was tried and chosen.

    Raises:
        ValueError: in `fit`, an argument is outside its range, or the data do not fit.

    Example:

    >>> from sklearn.datasets import make_regression
    >>> from keras_mhmcmc.sklearn import BayesianRegressor
    >>> X, y = make_regression(60, 3, noise=5.0, random_state=0)
    >>> model = BayesianRegressor((8,), epochs=20, sampling=0.1, random_state=0)
    >>> mean, std = model.fit(X, y).predict(X, return_std=True)
    >>> low, high = model.predict_interval(X, 0.9)
    >>> low.shape
    (60,)
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to inputs (N, d) and targets (N,) or (N, targets)."""
        X, y = validate_data(
            self, X, y, dtype="float64", multi_output=True, ensure_min_samples=4
        )
        self._has_one_target = np.ndim(y) == 1
        targets = np.asarray(y, "float64").reshape(len(X), -1)
        self._targets = StandardScaler().fit(targets)
        scaled = self._targets.transform(targets).astype("float32")
        loss = GaussianNLL()
        return self._fitted(X, scaled, loss.outputs(targets.shape[1]), loss)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predictive mean, and its standard deviation if asked for."""
        law = self._law(X)
        mean = self._shaped(self._targets.inverse_transform(law.mean()))
        if not return_std:
            return mean
        return mean, self._shaped(law.std() * self._targets.scale_)

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Array, Array]:
        """Return both ends of the central interval that has this probability."""
        ends = self._law(X).interval(level)
        low, high = (self._shaped(self._targets.inverse_transform(e)) for e in ends)
        return low, high

    def log_prob(self, X: Any, y: Any) -> Array:
        """Return the log density of each example (N,), in the unit of the targets."""
        targets = np.asarray(y, "float64").reshape(len(X), -1)
        nats = self._law(X).log_prob(self._targets.transform(targets))
        return nats - np.sum(np.log(self._targets.scale_))

    def _law(self, X: Any) -> PredictiveMixture:
        x = self._checked(X)
        return predict_distribution(self.ensemble_, x)

    def _shaped(self, values: Array) -> Array:
        """Return an array (N, targets) in the shape of the targets of `fit`."""
        return values[:, 0] if self._has_one_target else values


class BayesianClassifier(ClassifierMixin, _Estimator):
    """Classify with an ensemble from the posterior of a network with dense layers.

    Inputs are standardised. All else, the law that is sampled included, is as in
    `mh.BayesianEnsemble` with its defaults.

    The arguments are those of `BayesianRegressor`. `epochs` defaults to None: 30, and
    at least 6,000 mini-batches; `validation_split` to None: 1,000 examples, a tenth at
    least and a third at most.

    After `fit`, `classes_` has the labels in the order of the probabilities,
    `ensemble_` is the `mh.BayesianEnsemble`, a Keras model that takes standardised
    inputs, and `report_` tells what was tried and chosen.

    Raises:
        ValueError: in `fit`, an argument is outside its range, or the data do not fit.

    Example:

    >>> from sklearn.datasets import load_iris
    >>> from keras_mhmcmc.sklearn import BayesianClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianClassifier((8,), epochs=20, sampling=0.1, random_state=0)
    >>> model.fit(X, y).predict_proba(X).shape
    (150, 3)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to inputs (N, d) and labels (N,)."""
        X, y = validate_data(self, X, y, dtype="float64", ensure_min_samples=4)
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        labels = LabelEncoder().fit(y)
        self.classes_ = labels.classes_
        if len(self.classes_) < 2:
            raise ValueError(
                "Argument `y` must have at least two classes. "
                f"Received: one class, {self.classes_[0]!r}"
            )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return self._fitted(X, labels.transform(y), len(self.classes_), loss)

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities (N, classes), in the order of `classes_`."""
        x = self._checked(X)
        return np.asarray(self.ensemble_.predict(x, verbose=0), "float64")

    def predict(self, X: Any) -> Array:
        """Return the most probable label of each example, (N,)."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]
