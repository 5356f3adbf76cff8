"""The estimators are what scikit-learn expects, and their numbers are in its units."""

import io

import joblib
import keras
import numpy as np
import pytest
import scipy.stats
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import check_estimator

from keras_mhmcmc.sklearn import BayesianClassifier
from keras_mhmcmc.sklearn import BayesianRegressor

SMALL = {"num_members": 2, "sampling": 0, "epochs": 20, "random_state": 0}
LONGER = SMALL | {"epochs": 60, "batch_size": 16}
ESTIMATORS = [BayesianRegressor((8,), **LONGER), BayesianClassifier((8,), **SMALL)]


def line(seed, count=200):
    """Inputs and targets far from 0, with a deviation of 30 around a line."""
    rng = np.random.default_rng(seed)
    X = 50.0 + 10.0 * rng.normal(size=(count, 2))
    return X, 5000.0 + 20.0 * X[:, 0] + 30.0 * rng.normal(size=count)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_scikit_learns_own_checks_pass(estimator):
    check_estimator(estimator)


@pytest.mark.slow
def test_a_regression_is_in_the_unit_of_its_targets():
    X, y = line(0)
    model = BayesianRegressor((8,), **LONGER | {"sampling": 0.3}).fit(X, y)
    assert "samples" in [row["phase"] for row in model.report_.rows]
    X, y = line(1, 2000)
    mean, std = model.predict(X, return_std=True)
    assert np.sqrt(np.mean(np.square(mean - y))) < 40.0
    assert 25.0 < std.mean() < 45.0
    low, high = model.predict_interval(X, 0.9)
    assert 0.85 < np.mean((low < y) & (y < high)) < 0.97
    # Samples of a line are nearly one normal distribution.
    normal = scipy.stats.norm(mean, std).logpdf(y)
    assert np.mean(model.log_prob(X, y)) == pytest.approx(np.mean(normal), abs=0.05)


def test_several_targets_keep_their_shape():
    X, y = line(0)
    model = BayesianRegressor((8,), **SMALL).fit(X, np.stack([y, -y], axis=1))
    assert model.predict(X[:3]).shape == (3, 2)
    low, high = model.predict_interval(X[:3])
    assert np.all(low < high)
    assert model.log_prob(X, np.stack([y, -y], axis=1)).shape == (200,)


def test_labels_in_a_pipeline_of_columns_with_a_search(tmp_path):
    pandas = pytest.importorskip("pandas")
    data = load_breast_cancer(as_frame=True)
    X = data.data.iloc[:200, :4]
    X = X.assign(size=np.where(X["mean area"] > 600.0, "large", "small"))
    y = pandas.Series(np.where(data.target[:200], "benign", "malignant"))
    columns = ColumnTransformer(
        [("size", OneHotEncoder(), ["size"])], remainder="passthrough"
    )
    pipeline = make_pipeline(columns, BayesianClassifier((8,), **SMALL))
    grid = {"bayesianclassifier__hidden_layer_sizes": [(), (8,)]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert search.best_score_ > 0.85
    probabilities = search.predict_proba(X)
    assert list(search.classes_) == ["benign", "malignant"]
    chosen = search.classes_[probabilities.argmax(axis=1)]
    np.testing.assert_array_equal(search.predict(X), chosen)
    file = io.BytesIO()
    joblib.dump(search.best_estimator_, file)
    file.seek(0)
    again = joblib.load(file).predict_proba(X)
    np.testing.assert_allclose(again, probabilities, atol=1e-6)


def test_a_fit_repeats_in_a_cross_validation():
    X, y = line(0)
    model = BayesianRegressor((), **SMALL)
    first, second = (cross_val_score(model, X, y, cv=2) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.isfinite(first).all() and first[0] != first[1]


def test_the_model_of_keras_takes_standardised_inputs(tmp_path):
    X, y = line(0)
    model = BayesianRegressor((8,), **SMALL).fit(X, y)
    model.ensemble_.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    mean = y.mean() + y.std() * again.predict(scaled, verbose=0)[:, 0]
    np.testing.assert_allclose(mean, model.predict(X), rtol=1e-5)


def test_one_class_is_told():
    with pytest.raises(ValueError, match="at least two classes"):
        BayesianClassifier().fit(np.ones((20, 1)), np.ones(20))
