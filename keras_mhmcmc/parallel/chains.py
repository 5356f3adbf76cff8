"""`ParallelChains`: many chains of one network, trained side by side."""

import contextlib
import random
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Literal
from typing import Self

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import architecture
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._stored_model import with_callback
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.arguments import refuse_loss_scaling
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.parallel.checks import check_template
from keras_mhmcmc.parallel.checks import checked_optimizer
from keras_mhmcmc.parallel.starts import Start
from keras_mhmcmc.parallel.starts import checked_count
from keras_mhmcmc.parallel.starts import initial_values
from keras_mhmcmc.parallel.starts import values_of
from keras_mhmcmc.parallel.steps import ChainHistory
from keras_mhmcmc.parallel.steps import ChainMetrics
from keras_mhmcmc.parallel.steps import ChainStep
from keras_mhmcmc.parallel.steps import Value

Strategy = Literal["auto", "vmap", "loop"]


@dataclass
class Untracked:
    """The network, and what changes without being a weight."""

    template: keras.Model
    variables: list[keras.Variable]  # of the template: the trainable ones, the others
    metrics: ChainMetrics | None = None
    history: ChainHistory = field(default_factory=ChainHistory)
    strategy: Literal["vmap", "loop"] = "vmap"
    arguments: dict[str, Any] = field(default_factory=dict)  # of `compile`
    compilation: Any = None  # which one of the network belongs to the chains

    def compile(self, **arguments: Any) -> None:
        """Compile the network as the chains are, with an optimizer of its own."""
        own = self.template.optimizer if self.template.compiled else None
        # SGD, which never steps, has no slots that Keras would miss in a saved file.
        # Keras keeps the metrics of an earlier `compile` where the new ones are None.
        metrics = arguments["metrics"] or []
        self.template.compile(own or "sgd", **(arguments | {"metrics": metrics}))
        self.arguments, self.metrics = arguments, None
        self.compilation = _backend.compile_key(self.template)

    def compile_again(self) -> bool:
        """Compile the network again if others have done so since, and return it."""
        is_own = _backend.compile_key(self.template) is self.compilation
        if self.compilation is None or is_own:
            return False
        self.compile(**self.arguments)
        return True


@serializable
class ParallelChains(_backend.ChainTrainer, StackedModel):
    """Independent chains of one model, each with its own weights, noise and state.

    Compiled with a sampler, each chain samples the target of the sampler. Compiled with
    a Keras optimizer that treats weights one by one (SGD, Adam, ...), the chains are a
    deep ensemble. `fit`, `evaluate`, callbacks, saving and loading work as for any
    Keras model. In each step all chains see the same mini-batch. They therefore share
    the noise of mini-batches, and R-hat, which compares the chains, does not show it.

    Each chain has its own slots, acceptance and beta. If a chain rejects a proposal,
    its other floating-point variables (moving statistics) return to their old values,
    too. The states of its random generators do not, since a dropout mask would repeat.

    `fit` logs means over the chains; `chain_history` has the values of each chain.
    `predict` returns the shape (chains, examples, ...). With `mh.PosteriorSamples`,
    `posterior.to_arviz()` has the shape (chain, draw, ...), and `posterior.ensemble`
    averages over all chains and draws.

    On JAX with several devices, the chains are divided among the devices if their
    number is a multiple of the number of devices; otherwise each device holds all of
    them. Several hosts are refused: run one process with independent chains on each.

    Args:
        model: a built `keras.Model`, the architecture. Without `start`, the first chain
            starts from its weights, which do not change. The other chains start from
            trainable weights that its initializers draw, and from its frozen weights
            and moving statistics. `compile` also compiles this model, with the same
            loss and metrics, and keeps its optimizer.
        num_chains: number of chains, K, at least 1. Defaults to the number in `start`.
        seed: integer that makes the first weights repeatable. Defaults to None, which
            draws a seed. The noise of the chains comes from the sampler's own seed.
        strategy: "vmap" evaluates all chains in one vectorised pass. "loop" makes the
            whole step of one chain, then that of the next, so that its weights stay in
            the processor's cache. Both give the same chains up to rounding. Defaults to
            "auto": "vmap" on a GPU, and on a CPU for models of up to 40,000 weights
            (JAX) or 100,000 weights (TensorFlow, PyTorch), else "loop". "auto" also
            changes to "loop", and says so, if a layer cannot be vectorised.
        name: name of the model. Defaults to "parallel_chains".
        start: networks whose weights the chains start from, also frozen weights: an
            `mh.ParallelChains` with `num_chains` chains, or a list of `num_chains`
            models or paths of `.keras` or `.weights.h5` files. They need not be
            compiled. Their optimizers have no effect, and random generators get new
            states. Defaults to None.

    Raises:
        ValueError: an argument is outside its range, `model` is not built, has
            constraints or a `train_step` of its own, or cannot be rebuilt from its
            configuration, `start` has networks of another number or architecture, or
            there are several processes or replicas. In `compile`: it mixes the chains.

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
        self,
        model: keras.Model,
        num_chains: int | None = None,
        seed: int | None = None,
        strategy: Strategy = "auto",
        name: str = "parallel_chains",
        *,
        start: Start | None = None,
    ) -> None:
        super().__init__(name=_validate.scope_name(name))
        _backend.refuse_replicas("mh.ParallelChains")
        _validate.instance("model", model, keras.Model, "a `keras.Model`")
        if not model.built:
            raise ValueError(
                "Argument `model` must be a built model: give it an input shape, or "
                f"call it on some data first. Received: model={model}"
            )
        check_template(model)
        self.num_chains = checked_count(num_chains, start)
        self.seed = None if seed is None else _validate.seed(seed)
        self._asked: Strategy = _validate.choice(
            "strategy", strategy, ("auto", "vmap", "loop")
        )
        variables = [*model.trainable_variables, *model.non_trainable_variables]
        self._untracked = Untracked(model, variables)
        is_small = model.count_params() <= _backend.LOOP_ABOVE
        if self._asked != "auto":
            self._untracked.strategy = self._asked
        elif not _backend.accelerated() and not is_small:
            self._untracked.strategy = "loop"
        first = random.randint(1, 10**9) if seed is None else seed
        if start is None:
            values = initial_values(model, self.num_chains, first)
        else:
            values = values_of(start, model, self.num_chains, first)
        trainable = {id(variable) for variable in model.trainable_variables}
        stacked = {
            id(variable): stacked_variable(variable, value, id(variable) in trainable)
            for variable, value in zip(model.variables, values, strict=True)
        }
        _backend.place_chains(stacked.values(), self.num_chains)
        self._moving = [stacked[id(v)] for v in model.trainable_variables]
        self._others = [stacked[id(v)] for v in model.non_trainable_variables]
        self.built = True

    def __repr__(self) -> str:
        return f"ParallelChains({self.template!r}, num_chains={self.num_chains})"

    @property
    def template(self) -> keras.Model:
        """Return the model that gives every chain its architecture."""
        return self._untracked.template

    @property
    def strategy(self) -> Literal["vmap", "loop"]:
        """Return how the chains are evaluated: "vmap" or "loop"."""
        return self._untracked.strategy

    def _stacked(self) -> list[keras.Variable]:
        return [*self._moving, *self._others]  # in the order of `Untracked.variables`

    def _check_trainable(self) -> None:
        """Raise a `ValueError` if layers were frozen or unfrozen since the start."""
        own = self._untracked.variables[: len(self._moving)]
        before, now = (
            {id(v): v.path for v in vs}
            for vs in (own, self.template.trainable_variables)
        )
        if changed := before.keys() ^ now.keys():
            path = next(path for i, path in (before | now).items() if i in changed)
            raise ValueError(
                "The trainable layers of the network must stay the same while there "
                "are chains of it. After you change `layer.trainable`, make new chains "
                "that start where these are: `mh.ParallelChains(model, num_chains, "
                f"start=chains)`. Received: {len(changed)} variables that were frozen "
                f"or unfrozen, such as '{path}'"
            )

    def _each_chain(self, run: Callable[[int], Value]) -> Value:
        """Return `run` of all chains at a time, or of one if "auto" has to loop."""
        if self.strategy == "loop":
            return run(1)
        try:
            return run(self.num_chains)
        except Exception as error:  # frameworks have no type for what they cannot do
            failure = error
        try:
            outputs = run(1)
        except Exception as error:  # of the network itself
            error.add_note(
                "If one model trains without this error, a layer cannot be traced. Put "
                "it into the pipeline of the data, or fit one model for each chain."
            )
            raise
        # Keras names the layer in the first line, and has the reason in bold below.
        parts = [part.strip().split("\n")[0] for part in str(failure).split("\x1b[1m")]
        line = " ".join(parts[:2]).removesuffix("\x1b[0m")
        reason = f"{type(failure).__name__}: {line[:200]}"
        if self._asked == "vmap":
            raise ValueError(
                'Argument `strategy` must be "loop" or "auto" for this model, which '
                "has a layer that cannot be vectorised. "
                f'Received: strategy="vmap", and the error {reason}'
            ) from failure
        warn(
            "The chains are evaluated one after the other, since a layer cannot be "
            f'vectorised ({reason}). Pass strategy="loop" to stop this warning.'
        )
        self._untracked.strategy = "loop"
        return outputs

    # Predictions.

    def call(self, inputs: Tensor) -> Tensor:
        """Return the prediction of every chain, shape (examples, chains, ...)."""
        template, variables = self.template, self._untracked.variables

        def predict(values: Sequence[Tensor]) -> Tensor:
            with keras.StatelessScope(zip(variables, values, strict=True)):
                # Not `stateless_call`, which fails if `call` has no `training`.
                return template(inputs, training=False)

        stacked = [variable.value for variable in self._stacked()]
        outputs = self._each_chain(
            lambda chunk: _backend.map_members(predict, stacked, chunk)
        )
        return keras.tree.map_structure(lambda y: ops.moveaxis(y, 0, 1), outputs)

    def predict(self, *args: Any, **options: Any) -> Any:
        """Return the predictions of each chain, shape (chains, examples, ...)."""
        outputs = super().predict(*args, **options)
        return keras.tree.map_structure(lambda y: np.moveaxis(y, 1, 0), outputs)

    # Training.

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        loss: Any = None,
        metrics: Any = None,
        **options: Any,
    ) -> None:
        """Compile as `keras.Model.compile` does; `optimizer` moves each chain alone.

        On PyTorch `jit_compile=True` compiles the training steps of an optimizer of
        Keras for the first shape of a mini-batch. That takes half a minute, and small
        networks then train several times as fast.

        Raises:
            ValueError: it would mix the chains, or Keras' loss scaling wraps it.
        """
        self._check_trainable()
        optimizer = checked_optimizer(optimizer)
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **options)
        refuse_loss_scaling(self)
        is_sampler = isinstance(optimizer, Sampler)
        self.compile_steps(options.get("jit_compile") is True and not is_sampler)
        if isinstance(optimizer, Sampler):
            optimizer.use_chains(self.num_chains)
        self._untracked.compile(loss=loss, metrics=metrics, **options)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile with the result of `get_compile_config`, from any backend."""
        config = _backend.portable(config)
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.build_optimizer()

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Any = None,
        **options: Any,
    ) -> keras.callbacks.History:
        """Train all chains as `keras.Model.fit` does; its history has their means."""
        self._check_trainable()
        self._take_template()
        self._untracked.history = ChainHistory()
        history = self._untracked.history
        callbacks = with_callback(callbacks, history, first=history.of_metrics())
        return super().fit(x, y, batch_size, epochs, verbose, callbacks, **options)

    def evaluate(self, *args: Any, **options: Any) -> Any:
        """Return means over the chains, as `keras.Model.evaluate` does."""
        self._take_template()
        return super().evaluate(*args, **options)

    def _take_template(self) -> None:
        """Let the network have the loss and the metrics of these chains."""
        if self._untracked.compile_again():
            self.train_function = self.test_function = None

    @property
    def chain_history(self) -> dict[str, Array]:
        """Return arrays (epochs, chains) by metric or diagnostic, of the last `fit`."""
        return self._untracked.history.as_arrays()

    def evaluate_chains(
        self, x: Any = None, y: Any = None, **options: Any
    ) -> dict[str, Array]:
        """Return the loss and metrics of each chain: arrays (chains,) by name.

        The arguments are those of `keras.Model.evaluate`.
        """
        self.evaluate(x, y, **{"verbose": 0, "return_dict": True, **options})
        return self.chain_results()

    def chain_results(self) -> dict[str, Array]:
        """Return the current metrics of each chain: arrays (chains,) by name."""
        return self._built_metrics().by_chain()

    def examples_seen(self) -> int:
        """Return the number of examples of this epoch so far."""
        metrics = self._untracked.metrics
        return 0 if metrics is None else metrics.examples_seen()

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """Return a list with one metric, which holds the metrics of all chains."""
        return [] if self._untracked.metrics is None else [self._untracked.metrics]

    def _built_metrics(self) -> ChainMetrics:
        if self._untracked.metrics is None:
            raise ValueError(
                "There are no metrics yet. Call `fit` or `evaluate_chains` first."
            )
        return self._untracked.metrics

    def log_names(self) -> list[str]:
        return self._built_metrics().names

    def build_for_training(self) -> None:
        if self._untracked.metrics is None:
            self._untracked.metrics = ChainMetrics(self.template, self.num_chains)
        self.build_optimizer()

    def build_optimizer(self) -> None:
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
            rows = [v for v in self.optimizer.variables if len(v.shape) > 0]
            _backend.place_chains(rows, self.num_chains)

    # A step.

    def _step_variables(self, training: bool) -> list[keras.Variable]:
        """Return the variables of a step, in the order of Keras' state on JAX."""
        return [
            *self.trainable_variables,
            *self.non_trainable_variables,
            *(self.optimizer.variables if training else []),
            *self.metrics_variables,
        ]

    def _run_step(
        self, values: Sequence[Tensor], data: Any, training: bool
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Return the mean logs of one step, and the new values of `_step_variables`."""
        metrics = self._built_metrics()
        variables = self._step_variables(training)
        is_shared = [len(variable.shape) == 0 for variable in variables]
        chains = [v for v, flag in zip(values, is_shared, strict=True) if not flag]
        shared = [v for v, flag in zip(values, is_shared, strict=True) if flag]
        own, stacked = self._untracked.variables, (self._moving, self._others)
        parts = ChainStep(self.template, own, self.optimizer, *stacked, metrics.names)
        step = parts.train if training else parts.test
        chains, shared = self._each_chain(
            lambda chunk: _backend.over_chains(step, chains, shared, data, chunk)
        )
        logs = metrics.means(chains[-1])
        rest = {True: iter(shared), False: iter(chains)}
        return logs, [next(rest[flag]) for flag in is_shared]

    # Saving, and collecting samples.

    def member_weights(self, arrays: Sequence[Array]) -> list[Array]:
        """Return those of `template.weights`, given arrays for all of `weights`."""
        stacked = zip(self._untracked.variables, self._stacked(), strict=True)
        by_own = {id(own): variable for own, variable in stacked}
        by_id = dict(zip(map(id, self.weights), arrays, strict=True))
        return [by_id[id(by_own[id(v)])] for v in self.template.weights]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        self._check_trainable()
        return {
            "model": architecture(self.template),
            "num_chains": self.num_chains,
            "seed": self.seed,
            "strategy": self._asked,
            "name": self.name,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        """Return the chains with these arguments. Their weights are loaded later."""
        model = _backend.made_again("model", config["model"], custom_objects)
        return cls(**(config | {"model": model}))


def stacked_variable(
    variable: keras.Variable, value: Array, trainable: bool
) -> keras.Variable:
    """Return a variable with a leading chain axis and the path of `variable`.

    A sampler finds the regularizer there and warns of it. Only the network applies it.
    """
    *scopes, name = variable.path.split("/")
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        stacked = keras.Variable(
            value, dtype=variable.dtype, trainable=trainable, autocast=False, name=name
        )
    stacked.regularizer = variable.regularizer
    return stacked
