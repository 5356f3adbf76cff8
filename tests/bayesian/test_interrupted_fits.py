"""A `BayesianEnsemble.fit` that is killed, interrupted, or watched by callbacks."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.bayesian import chains
from keras_mhmcmc.bayesian import members
from keras_mhmcmc.bayesian.progress import Progress
from tests.bayesian.test_bayesian_ensemble import blobs
from tests.bayesian.test_bayesian_ensemble import line
from tests.bayesian.test_bayesian_ensemble import network

CLASSES = keras.losses.SparseCategoricalCrossentropy


def nightly(value):
    """A value whose whole fits cost 20 to 30 seconds where they compile."""
    return pytest.param(value, marks=pytest.mark.slow)


class Killed(Exception):
    """Stands for a process that ends."""


def stop_at(monkeypatch, number, error):
    """Let the round with this number end in an error, counted over all phases."""
    tell, told = Progress.tell, []

    def counted(self, *arguments, **logs):
        tell(self, *arguments, **logs)
        told.append(arguments[0])
        if len(told) == number:
            raise error

    monkeypatch.setattr(Progress, "tell", counted)
    return told


@pytest.fixture(scope="module", autouse=True)
def short_rounds():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(members, "_STEPS", 4)
        yield


def fitted(directory=None, **options):
    """An ensemble of classifiers: some decays, six rounds each, and some trials."""
    x, y = blobs()
    ensemble = mh.BayesianEnsemble(
        network(2, 2), 2, sampler="sgld", prior=1.0, max_samples=8, seed=0
    )
    ensemble.compile(CLASSES(from_logits=True))
    arguments = dict(epochs=24, sampling=0.5, directory=directory, verbose=0)
    ensemble.fit(x, y, **arguments | options)
    return ensemble


@pytest.fixture(scope="module")
def told():
    """What a whole fit tells its progress of."""
    return []


@pytest.fixture(scope="module")
def whole(told):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(members, "_SAVE_EVERY", 0.0)
        calls = stop_at(patch, 0, Killed)
        ensemble = fitted()
    told.extend(calls)
    return ensemble


def phases(ensemble):
    """Return the report without its times."""
    return [row | {"seconds": 0.0} for row in ensemble.report.rows]


@pytest.mark.in_turn("jax", "tensorflow", "torch")
@pytest.mark.parametrize("part", [nightly(0.1), 0.4, nightly(0.8)])
def test_a_killed_fit_goes_on_to_the_same_end(whole, told, monkeypatch, tmp_path, part):
    monkeypatch.setattr(members, "_SAVE_EVERY", 0.0)
    with monkeypatch.context() as patch:
        stop_at(patch, max(int(part * len(told)), 1), Killed)
        with pytest.raises(Killed):
            fitted(str(tmp_path))
    with monkeypatch.context() as patch:
        again = stop_at(patch, 0, Killed)
        resumed = fitted(str(tmp_path))
    assert len(again) < len(told)
    assert phases(resumed) == phases(whole)
    x, _ = blobs()
    for one, other in zip(resumed.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(resumed.predict_members(x), whole.predict_members(x))


def test_a_folder_of_another_fit_is_refused(tmp_path):
    x, y = line()
    for epochs, found in ((1, None), (2, "differs in epochs"), (1, "differs in data")):
        ensemble = mh.BayesianEnsemble(network(), 2, seed=0)
        ensemble.compile(mh.losses.GaussianNLL())
        arguments = dict(epochs=epochs, sampling=0, directory=str(tmp_path), verbose=0)
        if found is None:
            ensemble.fit(x, y, **arguments)
            continue
        with pytest.raises(ValueError, match=found):
            ensemble.fit(x, y + (found == "differs in data"), **arguments)
    ensemble = mh.BayesianEnsemble(network(), 2)
    ensemble.compile(mh.losses.GaussianNLL())
    with pytest.raises(ValueError, match="needs a `seed`"):
        ensemble.fit(x, y, directory=str(tmp_path))


def test_a_damaged_part_is_told(tmp_path):
    fitted(str(tmp_path), sampling=0)
    part = next(tmp_path.glob("members*.h5"))
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(ValueError, match="Remove it, and `fit` runs this part again"):
        fitted(str(tmp_path), sampling=0)


@pytest.mark.in_turn("jax", "tensorflow", "torch")
@pytest.mark.parametrize("phase", [nightly("members"), nightly("trial"), "samples"])
def test_ctrl_c_gives_the_best_so_far(monkeypatch, phase):
    tell = Progress.tell

    def interrupted(self, name, *arguments, **logs):
        tell(self, name, *arguments, **logs)
        if name.startswith(phase):
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "tell", interrupted)
    with pytest.warns(UserWarning, match="`fit` was interrupted") as told:
        ensemble = fitted()
    text = next(str(w.message) for w in told if "interrupted" in str(w.message))
    nll = float(text.split("networks, with ")[1].split()[0])
    rows = ensemble.report.rows
    trials = [row for row in rows if row["phase"] == "trial"]
    # The members that were chosen, or a mean with samples that is better.
    chosen = [row["nll"] + row["gain"] for row in trials[:1]]
    assert nll < 1.001 * (chosen or [max(row["nll"] for row in rows)])[0]
    x, _ = blobs()
    weights = ensemble.ensemble.averaging_weights
    expected = np.tensordot(weights, ensemble.predict_members(x), axes=1)
    np.testing.assert_allclose(ensemble.predict(x, verbose=0), expected, rtol=1e-4)


def test_ctrl_c_before_there_is_a_network_ends_fit(monkeypatch):
    stop_at(monkeypatch, 1, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        fitted()


def test_callbacks_see_each_round_and_may_end_fit(tmp_path):
    class StopsAtTheFifth(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = epoch == 5

    log = tmp_path / "log.csv"
    callbacks = [keras.callbacks.CSVLogger(str(log)), StopsAtTheFifth()]
    with pytest.warns(UserWarning, match="`fit` was interrupted"):
        ensemble = fitted(callbacks=callbacks)
    assert ensemble.ensemble.num_members == 2
    assert len(log.read_text().splitlines()) == 7  # a header and six rounds


def test_the_decay_of_classes_is_chosen(whole):
    kinds = [row["phase"] for row in whole.report.rows]
    rows = whole.report.rows[: kinds.index("trial")]
    assert "decay=0.1" in rows[0]["setting"] and len(rows) > 1
    first_trial = whole.report.rows[len(rows)]
    chosen = first_trial["gain"] + first_trial["nll"]
    assert any(chosen == pytest.approx(row["nll"]) for row in rows)


def test_classes_are_learned_from_all_examples_in_the_end(whole):
    """A third of 60 examples is held out, and 24 epochs of batches of 32 are planned.

    The longer training has half of the steps more, as the chains do.
    """
    rows = {row["phase"]: row for row in whole.report.rows}
    assert rows["refit"]["nll"] is None and rows["refit"]["networks"] == 2
    assert rows["members"]["steps"] == 36  # the last of them, one batch an epoch
    alone = fitted(sampling=0).report.rows
    assert [row["phase"] for row in alone][-2:] == ["members", "refit"]
    assert "refit" not in [row["phase"] for row in fitted(refit=False).report.rows]


def on_all_data(directory, **options):
    """A regression whose chains are short, and go on where those of the trial ended."""
    x, y = line()
    ensemble = mh.BayesianEnsemble(network(), 2, max_samples=8, seed=0)
    ensemble.compile(mh.losses.GaussianNLL())
    arguments = dict(epochs=2, sampling=10.0, directory=str(directory), verbose=0)
    ensemble.fit(x, y, **arguments | options)
    return ensemble


@pytest.mark.in_turn("jax", "tensorflow", "torch")
@pytest.mark.parametrize("refit", [True, False])
def test_chains_on_all_data_go_on_to_the_same_end(tmp_path, refit):
    whole = on_all_data(tmp_path, refit=refit)
    assert whole.report.rows[-1]["phase"] == "samples"
    for part in (None, "samples*.h5"):
        for path in tmp_path.glob(part or "nothing"):
            path.unlink()
        again = on_all_data(tmp_path, refit=refit)
        for one, other in zip(again.weights, whole.weights, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.in_turn("jax", "tensorflow", "torch")
def test_an_interrupted_run_of_chains_ends_the_fit(tmp_path, monkeypatch):
    run = chains.sample

    def interrupted(*arguments, **options):
        draws = run(*arguments, **options)
        draws.interrupted = True
        return draws

    monkeypatch.setattr(chains, "sample", interrupted)
    with pytest.warns(UserWarning, match="`fit` was interrupted.*2 networks"):
        ensemble = on_all_data(tmp_path)
    assert [row["phase"] for row in ensemble.report.rows] == ["members"]
    assert not list(tmp_path.glob("trial*.h5"))
