"""What users see when they print an object."""

import html.parser

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc import _version


def is_sparse(variable):
    return "dense" in variable.path


def small_model():
    inputs = keras.Input((4,), name="features")
    outputs = keras.layers.Dense(3, "softmax")(inputs)
    return keras.Model(inputs, outputs, name="small")


def sampled(optimizer, callback):
    model = small_model()
    model.compile(optimizer, "sparse_categorical_crossentropy")
    x = np.random.default_rng(0).normal(size=(32, 4))
    y = np.arange(32) % 3
    model.fit(x, y, batch_size=8, epochs=3, verbose=0, callbacks=[callback])
    return model


CALLS = [
    "SGLD(0.1, train_size=100)",
    "PSGLD(0.01, train_size=100, temperature=0.03, prior=priors.Gaussian(2.0))",
    "RSGLD(0.2, train_size=100, batch_size=10, seed=3)",
    "MHBT(0.1, train_size=100, batch_size=10, proposal=proposals.Langevin())",
    "CSGHMC(0.1, train_size=100, zeta=1.0)",
    "SGHMC(schedules.CyclicalCosine(0.1, cycle_steps=10), train_size=100)",
    "SGLDSA(0.1, train_size=9, prior=priors.SpikeSlab('dense', v0=0.1, v1=1.0))",
    "proposals.ReversibleLangevin(3.0, normalized=True)",
    "schedules.PowerDecay(0.1, offset=1.0, power=0.5)",
    "priors.Gaussian({'dense': 0.5})",
    "losses.GaussianNLL(noise_std=0.5)",
    "losses.GaussianNLL()",
    "losses.StudentTNLL(df=4.0)",
    "losses.MixtureNLL(3)",
    "losses.PoissonNLL()",
    "losses.NegativeBinomialNLL()",
    "PosteriorSamples(burn_in=5, every=2)",
]


def from_text(text):
    names = vars(mh) | {"__builtins__": {}}
    return eval(text, names)


@pytest.mark.parametrize("text", CALLS)
def test_an_object_prints_as_the_call_that_makes_it(text):
    printed = repr(from_text(text))
    for room in ("priors.", "proposals.", "schedules.", "losses."):
        text = text.replace(room, "")
    assert printed.removesuffix(": no samples yet") == text


def test_a_function_prints_by_its_name():
    prior = mh.priors.SpikeSlab(is_sparse, v0=0.1, v1=1.0)
    assert "is_sparse" in repr(prior)


def test_samples_and_ensembles_print_what_they_hold():
    posterior = mh.PosteriorSamples(burn_in=4)
    model = sampled(mh.SGLD(0.1, train_size=32, seed=0), posterior)
    assert repr(posterior) == (
        "PosteriorSamples(burn_in=4): 2 samples, iterations 8 to 12, weight ESS 2.0"
    )
    ensemble = posterior.ensemble(model)
    assert "num_members=2): 15 weights a member, averaged equally" in repr(ensemble)
    ensemble.set_members([np.stack([w, w]) for w in model.get_weights()], [1.0, 3.0])
    assert repr(ensemble).endswith("averaged with weights of ESS 1.6")
    chains = mh.ParallelChains(model, 3)
    assert repr(chains) == f"ParallelChains({model!r}, num_chains=3)"


def test_samples_tell_the_acceptance_of_the_last_epoch():
    posterior = mh.PosteriorSamples()
    sampler = mh.RSGLD(0.1, train_size=32, batch_size=8, warm_up=4, seed=0)
    model = sampled(sampler, posterior)
    accepted = model.history.history["acceptance"][-1]
    assert repr(posterior).endswith(f"acceptance {accepted:.2f} in the last epoch")


def test_an_empty_collection_is_true():
    posterior = mh.PosteriorSamples()
    assert len(posterior) == 0
    assert posterior


def test_the_summary_shows_the_member():
    ensemble = mh.Ensemble(small_model(), num_members=2)
    lines = []
    ensemble.summary(print_fn=lambda text, **_: lines.append(text), line_length=70)
    assert lines[0] == repr(ensemble)
    assert any("features" in line for line in lines[1:])


def test_logs_hold_nonfinite_only_where_there_is_some():
    posterior = mh.PosteriorSamples()
    model = small_model()
    sampler = mh.RSGLD(0.1, train_size=32, batch_size=8, warm_up=0, seed=0)
    model.compile(sampler, "sparse_categorical_crossentropy")
    x = np.ones((32, 4))
    history = model.fit(x, np.zeros(32), 8, verbose=0, callbacks=[posterior]).history
    assert "nonfinite" not in history
    x[9] = np.nan
    history = model.fit(x, np.zeros(32), 8, verbose=0, callbacks=[posterior]).history
    assert history["nonfinite"][0] > 0


def test_the_version_is_that_of_the_package():
    assert mh.__version__ == _version.__version__
    assert mh.__version__.count(".") == 2


class Cells(html.parser.HTMLParser):
    """The texts of the cells of an HTML table, row by row, and of its paragraphs."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.texts, self.caption = [], [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("th", "td"):
            self.rows[-1][-1] += data
        elif self.open and self.open[-1] == "p":
            self.texts.append(data)
        elif self.open and self.open[-1] == "caption":
            self.caption = data


def robustness_table():
    rows = [
        {"model": name, "epsilon": epsilon, "accuracy": 0.5, "nll": 1.0, "entropy": 0.1}
        for name in ("SGD", "<b>ensemble</b>")
        for epsilon in (0.0, 0.1)
    ]
    return mh.adversarial.RobustnessTable(
        rows, caption="FGSM & co", warnings=["a: the accuracy is < 1."]
    )


def test_a_table_in_a_notebook_has_the_cells_of_the_printed_table():
    found = Cells(robustness_table()._repr_html_())
    assert found.rows == [
        ["accuracy", "0", "0.1"],
        ["SGD", "0.5000", "0.5000"],
        ["<b>ensemble</b>", "0.5000", "0.5000"],
    ]
    assert found.caption == "FGSM & co"
    assert found.texts == ["Warning: a: the accuracy is < 1."]


def test_all_tables_are_shown_in_notebooks():
    model = small_model()
    model.compile("sgd", "sparse_categorical_crossentropy")
    x, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3
    clipped = np.clip(x, 0.0, 1.0)
    sampler = mh.SGLD(0.1, train_size=30)
    for table in (
        mh.evaluate({"one": model}, x, y),
        mh.adversarial.robustness_curve({"one": model}, clipped, y, [0.0, 0.1]),
        mh.adversarial.transfer({"one": model}, {"two": model}, clipped, y, 0.1),
        mh.suggest_learning_rate(model, x, y, sampler, rates=[0.1, 1.0], steps=4),
    ):
        found = Cells(table._repr_html_())
        inside = [text for row in found.rows for text in row]
        words = " ".join([found.caption, *inside, *found.texts]).split()
        assert words == repr(table).split()
