"""`ParallelChains`: many chains of one network, trained side by side."""

import random

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import architecture
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.parallel import optimizers as parallel_optimizers
from keras_mhmcmc.parallel.history import ChainHistory
from keras_mhmcmc.parallel.history import ChainMetrics
from keras_mhmcmc.parallel.initial_values import initial_values
from keras_mhmcmc.parallel.stacked_model import StackedModel
from keras_mhmcmc.parallel.stacked_values import any_number_of_rows
from keras_mhmcmc.parallel.stacked_values import split
from keras_mhmcmc.parallel.stacked_values import stacked_variable
from keras_mhmcmc.parallel.stacked_values import where_accepted


@serializable
class ParallelChains(_backend.ChainTrainer, StackedModel):
    """Independent chains of one model, each with its own weights, noise and state.

    Compiled with a sampler, each chain samples the sampler's law; compiled with a Keras
    optimizer that treats weights one by one (SGD, Adam, ...) it is a deep ensemble. All
    of `fit`, `evaluate`, callbacks, saving and loading work as for any Keras model. In
    each step all chains see the same mini-batch, so the noise of mini-batches is common
    to them: it does not show in R-hat, which compares the chains.

    Each chain has its own slots, acceptance and beta. Where a chain rejects a
    proposal, its other floating-point variables (moving statistics) go back too; the
    states of its random generators do not, or a dropout mask would come again.

    `fit` logs means over the chains; `chain_history` has the values of each. `predict`
    has the shape (chains, examples, ...). With `mh.PosteriorSamples`,
    `posterior.to_arviz()` has the shape (chain, draw, ...) and `posterior.ensemble`
    averages over all chains and draws.

    On JAX with several devices the chains are spread over them, where their number can
    be divided by that of the devices; otherwise each device has all of them. Several
    hosts are refused: run independent chains there, a process for each.

    Args:
        model: a built `keras.Model`, the architecture. The first chain starts from its
            weights, which stay as they are; the others start from weights that its
            initializers draw. `compile` compiles it too, with the same loss and
            metrics.
        num_chains: number of chains, K, an integer that is at least 1.
        seed: integer that makes the first weights repeatable; None draws one. The
            noise of the chains comes from the sampler's own seed.
        strategy: "vmap" evaluates all chains in one vectorised pass, "loop" makes the
            whole step of one chain after the other, in one compiled program. "auto" is
            "vmap" on a GPU, and on a CPU for models of up to 40,000 weights (JAX) or
            100,000, else "loop", where the weights of a chain stay in the cache; on
            JAX that was measured to be faster. Where a layer cannot be vectorised (on
            PyTorch convolutions and dropout), "auto" turns to the loop. Both give the
            same chains to rounding.
        name: name of the model.

    Raises:
        ValueError: an argument is outside its range, `model` is not built or cannot be
            made again from its configuration, or there are several processes or
            replicas; or, in `compile`, the optimizer would mix the chains.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> chains = mh.ParallelChains(model, num_chains=3, seed=0)
    >>> chains.compile(
    ...     optimizer=mh.SGLD(1e-3, train_size=64, seed=0),
    ...     loss=mh.losses.GaussianNLL(noise_std=0.1),
    ... )
    >>> x, y = np.ones((64, 4)), np.ones(64)
    >>> history = chains.fit(x, y, batch_size=16, epochs=2, verbose=0)
    >>> chains.chain_history["loss"].shape
    (2, 3)
    >>> chains.predict(x, verbose=0).shape
    (3, 64, 1)
    """

    def __init__(
        self, model, num_chains, seed=None, strategy="auto", name="parallel_chains"
    ):
        super().__init__(name=_validate.scope_name(name))
        _backend.refuse_replicas()
        _validate.instance("model", model, keras.Model, "a `keras.Model`")
        if not model.built:
            raise ValueError(
                "Argument `model` must be a built model: give it an input shape, or "
                f"call it on some data first. Received: model={model}"
            )
        self.num_chains = _validate.integer("num_chains", num_chains, 1)
        self.seed = None if seed is None else _validate.seed(seed)
        self._asked = _validate.choice("strategy", strategy, ("auto", "vmap", "loop"))
        # In a box, where Keras does not look: the template's weights are not ours.
        self._box = _Box(model)
        if self._asked != "auto":
            self._box.strategy = self._asked
        elif _backend.accelerated() or model.count_params() <= _backend.loop_above():
            self._box.strategy = "vmap"
        else:
            self._box.strategy = "loop"
        first = random.randint(1, 10**9) if seed is None else seed
        values = initial_values(model, self.num_chains, first)
        trainable = {id(variable) for variable in model.trainable_variables}
        stacked = {
            id(variable): stacked_variable(variable, value, id(variable) in trainable)
            for variable, value in zip(model.variables, values, strict=True)
        }
        _backend.place_chains(stacked.values(), self.num_chains)
        self._moving = [stacked[id(v)] for v in model.trainable_variables]
        self._others = [stacked[id(v)] for v in model.non_trainable_variables]
        self.built = True

    @property
    def template(self):
        """The model whose architecture every chain has."""
        return self._box.template

    @property
    def strategy(self):
        """How the chains are evaluated: "vmap" or "loop"."""
        return self._box.strategy

    # Predictions.

    def call(self, inputs):
        """Every chain's prediction, shape (examples, chains, ...)."""
        template = self.template
        variables = [*template.trainable_variables, *template.non_trainable_variables]

        def predict(values):
            with keras.StatelessScope(zip(variables, values, strict=True)):
                # Called, since `stateless_call` fails where `call` takes no `training`.
                return template(inputs, training=False)

        stacked = [variable.value for variable in [*self._moving, *self._others]]
        chunk = self.num_chains if self.strategy == "vmap" else 1
        outputs = _backend.map_members(predict, stacked, chunk)
        return keras.tree.map_structure(lambda y: ops.moveaxis(y, 0, 1), outputs)

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        """Predictions of each chain, shape (chains, examples, ...)."""
        outputs = super().predict(
            x, batch_size=batch_size, verbose=verbose, steps=steps, callbacks=callbacks
        )
        return keras.tree.map_structure(lambda y: np.moveaxis(y, 1, 0), outputs)

    # Training.

    def compile(self, optimizer="rmsprop", loss=None, metrics=None, **options):
        """As `keras.Model.compile`; `optimizer` moves every chain by itself."""
        optimizer = parallel_optimizers.checked(optimizer)
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **options)
        if isinstance(optimizer, Sampler):
            optimizer.use_chains(self.num_chains)
        self.template.compile(optimizer=None, loss=loss, metrics=metrics, **options)
        self._box.metrics = None

    def compile_from_config(self, config):
        """Compiles with what `get_compile_config` gave."""
        config = _backend.portable(config)
        self.compile(**keras.saving.deserialize_keras_object(config))
        self._build_optimizer()

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=1,
        verbose="auto",
        callbacks=None,
        **options,
    ):
        """As `keras.Model.fit`; `chain_history` has the values of each chain."""
        self._box.history = ChainHistory()
        callbacks = [] if callbacks is None else callbacks
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.append(self._box.history)
        else:
            callbacks = [*keras.tree.flatten(callbacks), self._box.history]
        return super().fit(x, y, batch_size, epochs, verbose, callbacks, **options)

    @property
    def chain_history(self):
        """Metrics and diagnostics of the last `fit`: name to array (epochs, chains)."""
        return self._box.history.as_arrays()

    def evaluate_chains(self, x=None, y=None, **options):
        """Loss and metrics of each chain: name to array (chains,)."""
        self.evaluate(x, y, **{"verbose": 0, "return_dict": True, **options})
        return self.chain_results()

    def chain_results(self):
        """What the metrics of each chain say now: name to array (chains,)."""
        return self._box.metrics.by_chain()

    def examples_seen(self):
        """The examples of this epoch so far, as Keras' mean of the loss counts them."""
        return 0 if self._box.metrics is None else self._box.metrics.examples_seen()

    @property
    def metrics(self):
        """The metrics of all chains, as one."""
        return [] if self._box.metrics is None else [self._box.metrics]

    def _flatten_metrics_in_order(self, logs):
        values = [logs[name] for name in self._box.metrics.names]
        return values[0] if len(values) == 1 else values

    def _symbolic_build(self, iterator=None, data_batch=None):
        self.template._symbolic_build(iterator=iterator, data_batch=data_batch)
        if self._box.metrics is None:
            self._box.metrics = ChainMetrics(self.template, self.num_chains)
        self._build_optimizer()

    def _build_optimizer(self):
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
            rows = [v for v in self.optimizer.variables if len(v.shape) > 0]
            _backend.place_chains(rows, self.num_chains)

    # A step.

    def _step_variables(self, training):
        """What a step reads and writes, in the order of Keras' state on JAX."""
        return [
            *self.trainable_variables,
            *self.non_trainable_variables,
            *(self.optimizer.variables if training else []),
            *self.metrics_variables,
        ]

    def _run_step(self, values, data, training):
        """The mean logs of one step, and the new values of `_step_variables`."""
        variables = self._step_variables(training)
        is_shared = [len(variable.shape) == 0 for variable in variables]
        chains = [v for v, flag in zip(values, is_shared, strict=True) if not flag]
        shared = [v for v, flag in zip(values, is_shared, strict=True) if flag]
        step = self._train_some if training else self._test_some
        try:
            chunk = self.num_chains if self.strategy == "vmap" else 1
            chains, shared = _backend.over_chains(step, chains, shared, data, chunk)
        except _backend.NotVectorizable as error:
            if self._asked == "vmap":
                raise ValueError(
                    'Argument `strategy` must be "loop" or "auto" for this model: a '
                    'layer of it cannot be vectorised. Received: strategy="vmap", '
                    f"which gives: {error}"
                ) from error
            self._box.strategy = "loop"
            chains, shared = _backend.over_chains(step, chains, shared, data, 1)
        logs = self._box.metrics.means(chains[-1])
        rest = {True: iter(shared), False: iter(chains)}
        return logs, [next(rest[flag]) for flag in is_shared]

    def _train_some(self, chains, shared, data):
        """One step of some chains; `chains` holds their slices of the variables."""
        slots = [v for v in self.optimizer.variables if len(v.shape) > 0]
        counts = [len(self._moving), len(self._others), len(slots)]
        trainable, others, slot_values, metrics = split(chains, counts)

        def evaluate(trainable, rest):
            return self._evaluate(trainable, *rest, data=data, training=True)

        losses, gradients, (new_others, metrics) = _backend.chain_gradients(
            evaluate, trainable, (others, metrics)
        )
        values = [*trainable, *slot_values, *shared]
        values, accepted = self._apply(slots, values, losses, gradients)
        if accepted is not None:
            new_others = where_accepted(accepted, new_others, others)
        trainable, slot_values, shared = split(values, [counts[0], counts[2]])
        return [*trainable, *new_others, *slot_values, *metrics], shared

    def _apply(self, slots, values, losses, gradients):
        """The optimizer's step, and which chains accepted (None: all)."""
        shared = [v for v in self.optimizer.variables if len(v.shape) == 0]
        rows = [*self._moving, *slots]
        accepted = None
        with (
            any_number_of_rows(rows),
            _backend.writable_optimizer(self.optimizer),
            keras.StatelessScope() as scope,
        ):
            for variable, value in zip([*rows, *shared], values, strict=True):
                scope.add_update((variable, value))
            if isinstance(self.optimizer, Sampler):
                self.optimizer.observe_losses(losses)
            self.optimizer.apply(gradients, self._moving)
            if isinstance(self.optimizer, Sampler):
                accepted = self.optimizer.take_accepted()
        return [scope.get_current_value(v) for v in [*rows, *shared]], accepted

    def _test_some(self, chains, shared, data):
        """The evaluation of a batch by some chains."""
        counts = [len(self._moving), len(self._others)]

        def evaluate(values):
            return self._evaluate(*values, data=data, training=False)[1]

        values = split(chains, counts)
        others, metrics = _backend.chain_outputs(evaluate, values)
        return [*values[0], *others, *metrics], shared

    def _evaluate(self, trainable, others, metrics, data, training):
        """The loss of one chain, and the new values of what is not trained."""
        template = self.template
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        *states, _ = metrics
        variables = [
            *template.trainable_variables,
            *template.non_trainable_variables,
            *template.metrics_variables,
        ]
        mapping = zip(variables, [*trainable, *others, *states], strict=True)
        with keras.StatelessScope(mapping, collect_losses=True) as scope:
            predictions = _backend.step_outputs(template, x, training)
            loss = template.compute_loss(
                x, y, predictions, sample_weight, training=training
            )
            size = keras.tree.flatten(x)[0].shape[0]
            template._loss_tracker.update_state(loss, sample_weight=size)
            logs = template.compute_metrics(x, y, predictions, sample_weight)
        results = [
            ops.mean(ops.cast(logs[name], "float32"))
            for name in self._box.metrics.names
        ]
        new = [scope.get_current_value(variable) for variable in variables]
        _, others, states = split(new, [len(trainable), len(others)])
        return loss, (others, [*states, ops.stack(results)])

    # Saving, and collecting samples.

    def member_weights(self, arrays):
        """Of one array for each of `weights`, those of `template.weights`."""
        template = self.template
        own = [*template.trainable_variables, *template.non_trainable_variables]
        by_own = dict(zip(map(id, own), [*self._moving, *self._others], strict=True))
        by_id = dict(zip(map(id, self.weights), arrays, strict=True))
        return [by_id[id(by_own[id(v)])] for v in template.weights]

    def save(self, filepath, overwrite=True, zipped=None, **options):
        """As `keras.Model.save`, to a `.keras` file."""
        _backend.refuse_legacy_file(filepath)
        super().save(filepath, overwrite, zipped, **options)

    def get_config(self):
        """The arguments of the constructor."""
        return {
            "model": architecture(self.template),
            "num_chains": self.num_chains,
            "seed": self.seed,
            "strategy": self._asked,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """The chains with these arguments; their weights are loaded separately."""
        model = _backend.made_again("model", config["model"], custom_objects)
        return cls(**(config | {"model": model}))


class _Box:
    """Holds what Keras must not track as part of the chains."""

    def __init__(self, template):
        self.template = template
        self.metrics = None
        self.history = ChainHistory()
        self.strategy = None
