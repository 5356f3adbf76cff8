"""`ParallelChains(start=...)`: chains that begin where other networks ended."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential
from tests.support.samplers import BATCH_SIZE
from tests.support.samplers import TRAIN_SIZE


def with_state(units=CLASSES):
    """A model with moving statistics and a random generator."""
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.BatchNormalization(momentum=0.5),
            keras.layers.Dropout(0.5, seed=4),
            keras.layers.Dense(units, "softmax"),
        ]
    )


def trained(count, make=sequential):
    """Models from different first weights, after two epochs of Adam."""
    models = []
    for seed in range(count):
        keras.utils.set_random_seed(seed)
        model = make(seed) if make is sequential else make()
        fit(compiled(keras.optimizers.Adam(0.01), model))
        models.append(model)
    return models


def check_rows(chains, models):
    """Each chain has the weights of its model, also those that are not trained."""
    stacked = chains.member_weights([numpy(v) for v in chains.weights])
    for index, model in enumerate(models):
        for rows, variable in zip(stacked, model.weights, strict=True):
            np.testing.assert_array_equal(rows[index], numpy(variable))


def sgld():
    return mh.SGLD(0.01, train_size=TRAIN_SIZE, seed=0)


@pytest.mark.parametrize("make", [sequential, with_state])
def test_each_chain_starts_from_its_model(make):
    models = trained(3, make)
    before = [numpy(v) for model in models for v in model.variables]
    chains = mh.ParallelChains(make(), 3, seed=0, start=models)
    check_rows(chains, models)
    fit(compiled(sgld(), chains))
    after = [numpy(v) for model in models for v in model.variables]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
def test_each_chain_starts_from_its_file(ending, tmp_path):
    models = trained(2, with_state)
    paths = [tmp_path / f"{place}{ending}" for place in range(2)]
    for model, path in zip(models, paths, strict=True):
        (model.save if ending == ".keras" else model.save_weights)(path)
    template = compiled("sgd", with_state())
    before = [numpy(v) for v in template.variables]
    check_rows(mh.ParallelChains(template, 2, start=paths), models)
    mixed = mh.ParallelChains(template, 2, start=(models[0], str(paths[1])))
    check_rows(mixed, models)
    for one, variable in zip(before, template.variables, strict=True):
        np.testing.assert_array_equal(one, numpy(variable))


def test_chains_start_from_a_deep_ensemble_without_its_optimizer():
    members = mh.ParallelChains(with_state(), 3, seed=0)
    fit(compiled(keras.optimizers.Adam(0.01), members))
    chains = mh.ParallelChains(with_state(), 3, seed=1, start=members)
    pairs = [
        each.member_weights([numpy(v) for v in each.weights])
        for each in (members, chains)
    ]
    for one, other in zip(*pairs, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not chains.compiled
    compiled(sgld(), chains)
    fit(chains)
    assert int(chains.optimizer.iterations) == 2 * -(-TRAIN_SIZE // BATCH_SIZE)


def test_a_chain_of_a_sampler_starts_from_the_state_and_not_from_the_proposal():
    source = mh.ParallelChains(sequential(), 2, seed=0)
    optimizer = mh.MHBT(0.5, train_size=TRAIN_SIZE, batch_size=BATCH_SIZE, seed=0)

    class Fork(keras.callbacks.Callback):
        found = None

        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                self.found = mh.ParallelChains(sequential(), 2, start=self.model)
                self.states = [numpy(v) for v in optimizer.state_values()]

    fork = Fork()
    fit(compiled(optimizer, source), epochs=1, callbacks=[fork])
    for variable, state in zip(
        fork.found.trainable_variables, fork.states, strict=True
    ):
        np.testing.assert_array_equal(numpy(variable), state)


def test_generators_are_drawn_anew():
    """Models with one seed would otherwise give all chains the same masks."""
    model = with_state()
    first, again, other = (
        mh.ParallelChains(with_state(), 2, seed=seed, start=[model, model])
        for seed in (0, 0, 1)
    )

    def states(chains):
        kept = {id(v) for v in chains.template.weights}
        places = [id(v) not in kept for v in chains.template.non_trainable_variables]
        (place,) = np.flatnonzero(places)
        return numpy(chains._others[place])

    assert states(first).shape == (2, 2)
    assert (states(first)[0] != states(first)[1]).any()
    np.testing.assert_array_equal(states(first), states(again))
    assert (states(first) != states(other)).any()
    fit(compiled(keras.optimizers.SGD(0.1), first))
    losses = first.chain_history["loss"][-1]
    assert losses[0] != losses[1]


def test_a_subclass_without_a_configuration_can_start_from_models():
    class Custom(keras.Model):
        def __init__(self, units):
            super().__init__()
            self.dense = keras.layers.Dense(units, "softmax")

        def call(self, inputs):
            return self.dense(inputs)

    models = [Custom(CLASSES) for _ in range(3)]
    for model in models:
        model(np.zeros((1, FEATURES), "float32"))
    chains = mh.ParallelChains(models[0], 2, start=models[1:])
    check_rows(chains, models[1:])
    fit(compiled(sgld(), chains))


def test_saved_chains_have_their_weights_and_no_start(tmp_path):
    models = trained(2)
    chains = mh.ParallelChains(sequential(), 2, seed=0, start=models)
    assert "start" not in chains.get_config()
    fit(compiled(sgld(), chains))
    path = tmp_path / "chains.keras"
    chains.save(path)
    loaded = keras.saving.load_model(path)
    for one, other in zip(chains.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(numpy(one), numpy(other))
    fit(chains)
    fit(loaded)
    for one, other in zip(chains.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(numpy(one), numpy(other))
    rebuilt = mh.ParallelChains.from_config(chains.get_config())
    assert rebuilt.num_chains == 2


@pytest.mark.eager_and_compiled
@pytest.mark.parametrize("kind", ["never compiled", "compiled", "chains"])
def test_models_that_were_never_trained_give_the_number_of_chains(kind):
    models = [with_state() for _ in range(2)]
    if kind == "compiled":
        for model in models:
            compiled(mh.RSGLD(0.1, batch_size=BATCH_SIZE), model)
    start = mh.ParallelChains(models[0], start=models) if kind == "chains" else models
    chains = mh.ParallelChains(with_state(), start=start)
    check_rows(chains, models)
    fit(compiled(mh.SGLD(0.01, seed=0), chains))
    assert chains.num_chains == 2
    assert mh.deep_ensemble(chains).num_members == 2


class TestRefused:
    def refuse(self, start, match, model=None):
        with pytest.raises(ValueError, match=match):
            mh.ParallelChains(model or sequential(), 2, start=start)

    def test_another_number_of_networks(self):
        models = [sequential() for _ in range(3)]
        self.refuse(models, r"`num_chains=3`.*Received: 3 networks, num_chains=2")
        self.refuse(mh.ParallelChains(sequential(), 3), "3 networks, num_chains=2")

    def test_no_number_of_chains(self):
        for start in (None, [], "a.keras"):
            match = (
                "`num_chains` must be an integer .*network for each chain in `start`"
            )
            with pytest.raises(ValueError, match=match):
                mh.ParallelChains(sequential(), start=start)

    def test_other_shapes(self):
        other = keras.Sequential([keras.Input((5,)), keras.layers.Dense(7)])
        self.refuse([sequential(), other], r"start\[1\], which has 2 weights instead")
        wide = [with_state(), with_state(CLASSES + 1)]
        match = r"start\[1\], whose weight '.*kernel' has the shape \(5, 4\) instead"
        self.refuse(wide, match, with_state())
        self.refuse(mh.ParallelChains(with_state(), 2), "6 weights instead of 4")

    def test_a_model_that_is_not_built(self):
        model = keras.Sequential([keras.layers.Dense(2)])
        self.refuse([sequential(), model], r"built models.*start\[1\], which is not")

    def test_weights_that_are_not_finite(self):
        model = sequential()
        model.weights[0].assign(np.full(model.weights[0].shape, np.nan))
        self.refuse([sequential(), model], r"start\[1\], whose weight .* has 35 values")

    @pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
    def test_a_file_that_does_not_exist_or_is_another(self, ending, tmp_path):
        path = str(tmp_path / f"no{ending}")
        self.refuse([path, path], r"files that exist.*start\[0\]='.*no")
        with open(path, "w") as file:
            file.write("nothing")
        self.refuse([path, path], r"start\[0\]='.*no.*which raises")
        other = with_state()
        (other.save if ending == ".keras" else other.save_weights)(path)
        self.refuse([path, path], r"start\[0\]='.*no.*which raises")

    @pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
    @pytest.mark.parametrize("size", ["fewer", "more"])
    def test_a_file_of_fewer_or_more_layers(self, ending, size, tmp_path):
        def stack(depth):
            layers = [keras.layers.Dense(4) for _ in range(depth)]
            return keras.Sequential([keras.Input((4,)), *layers])

        path = str(tmp_path / f"other{ending}")
        other = stack(1 if size == "fewer" else 3)
        (other.save if ending == ".keras" else other.save_weights)(path)
        self.refuse([path, path], r"start\[0\]", stack(2))

    def test_another_ending(self):
        self.refuse(["a.h5", "b.h5"], r"end in `.keras`.*start\[0\]='a.h5'")

    def test_what_is_no_network(self):
        self.refuse("a.keras", "None, an `mh.ParallelChains`, or a list")
        self.refuse([sequential(), 3], r"a list with .*start\[1\]=3")
