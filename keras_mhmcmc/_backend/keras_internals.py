"""All that the package takes from the private interface of Keras, with the reasons.

Each function stands for something that Keras 3 does without offering it. A test in
`tests/backend/test_keras_internals.py` fails if a new version does it in another way.
"""

import contextlib
import inspect
import re
import sys
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
from types import FrameType
from typing import Any

import keras
from keras.src.backend.common.masking import get_keras_mask as mask_of  # of padding
from keras.src.backend.common.masking import set_keras_mask
from keras.src.backend.common.stateless_scope import in_stateless_scope  # noqa: F401
from keras.src.export import export_utils
from keras.src.models.functional import Functional
from keras.src.models.functional import operation_fn
from keras.src.optimizers.base_optimizer import BaseOptimizer

# Models.


def step_outputs(model: keras.Model, x: Any, training: bool) -> Any:
    """Return the outputs of `model` as the training or test step of Keras does."""
    # On JAX the step runs `call` itself: layers inside a subclassed model that does not
    # pass `training` on stay in inference mode.
    takes_it = "training" in inspect.signature(model.call).parameters
    given = {"training": training} if takes_it else {}
    run = model.call if keras.backend.backend() == "jax" else model
    return run(x, **given)


def inner_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Return `model` and its layers at any depth; `model.layers` has one level only."""
    return list(model._flatten_layers())


def split_call(
    model: keras.Model, frozen: Set[int]
) -> tuple[Callable[[Any], Any], Callable[[Any], Any], list[keras.Variable]]:
    """Return `first`, `rest`, and the variables of `rest`.

    rest(first(x)) is model(x, training=False). `first` has the layers that the inputs
    reach through frozen layers alone. Two models made of public tensors would compute
    the same, but leave new nodes in the user's layers, whose `output` is then an error.
    If the model has a `call` of its own, all is in `rest`.
    `frozen` has the `id` of the weights of frozen layers.
    """
    graph: Any = model
    if type(model).call is keras.Sequential.call:
        graph = model._functional
    known: set[int] = set()
    parts: tuple[list[Any], list[Any]] = ([], [])
    if isinstance(graph, Functional) and type(graph).call is Functional.call:
        known.update(map(id, graph.inputs))
        for _, nodes in sorted(graph._nodes_by_depth.items(), reverse=True):
            for node in nodes:
                is_frozen = all(id(w) in frozen for w in _of(node, "weights"))
                is_first = is_frozen and known.issuperset(map(id, node.input_tensors))
                if not is_first:
                    parts[1].append(node)
                elif not node.is_input:
                    known.update(map(id, node.outputs))
                    parts[0].append(node)
    if not parts[0]:
        variables = model.trainable_variables + model.non_trainable_variables
        return lambda x: x, lambda x: model(x, training=False), variables

    def run(nodes: list[Any], tensors: dict[int, Any]) -> dict[int, Any]:
        for node in nodes:
            arguments, options = node.arguments.fill_in(tensors)
            call = operation_fn(node.operation, training=False)
            outputs = keras.tree.flatten(call(*arguments, **options))
            tensors |= zip(map(id, node.outputs), outputs, strict=False)  # as Keras
        return tensors

    def first(x: Any) -> dict[int, Any]:
        values = graph._standardize_inputs(x)
        return run(parts[0], dict(zip(map(id, graph.inputs), values, strict=True)))

    def rest(tensors: dict[int, Any]) -> Any:
        tensors = run(parts[1], dict(tensors))
        outputs = [tensors[id(output)] for output in graph.outputs]
        return keras.tree.pack_sequence_as(graph._outputs_struct, outputs)

    return first, rest, [v for node in parts[1] for v in _of(node, "variables")]


def _of(node: Any, what: str) -> list[keras.Variable]:
    """Return "weights" or "variables" of a node's layer; an operation has none."""
    is_layer = isinstance(node.operation, keras.layers.Layer)
    return getattr(node.operation, what) if is_layer else []


def adding_layers(model: keras.Model) -> list[str]:
    """Return the names of the layers that add a loss of their own."""
    # The public `model.losses` is empty in a step on JAX.
    return [
        layer.name
        for layer in inner_layers(network_of(model))
        if layer._losses or layer._loss_ids
    ]


def network_of(model: keras.Model) -> keras.Model:
    """Return the network that `model` trains: of chains, that of each chain."""
    return model.template if isinstance(model, TrainerHooks) else model


def makes_masks(model: keras.Model) -> bool:
    """Return whether a layer of a model makes a mask, as of padding."""
    return any(map(_makes_mask, inner_layers(model)))


def _makes_mask(layer: keras.layers.Layer) -> bool:
    if isinstance(layer, keras.layers.Embedding):
        return layer.mask_zero
    if isinstance(layer, keras.layers.Lambda):
        return layer.mask is not None
    if type(layer).compute_mask is keras.layers.Layer.compute_mask:
        return False
    # Other layers of Keras, such as sums and LSTM, only hand a mask on.
    is_of_keras = type(layer).__module__.startswith("keras.src.")
    return isinstance(layer, keras.layers.Masking) or not (
        is_of_keras or isinstance(layer, keras.Model)
    )


def give_masks(outputs: Any, model: keras.Model, x: Any) -> None:
    """Give the outputs the masks that those of `model` have for the inputs `x`."""
    pairs = zip(
        *map(keras.tree.flatten, (outputs, model(x, training=False))), strict=True
    )
    for output, own in pairs:
        mask = mask_of(own)
        if mask is not None:
            set_keras_mask(output, mask)


def compile_arguments(model: keras.Model) -> dict[str, Any]:
    """Return the arguments of `model.compile`, of which some have no configuration."""
    return model._compile_config.config


def _own_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    return layer._trainable_variables + layer._non_trainable_variables


def changed_by_saving(model: keras.Model) -> list[keras.Variable]:
    """Return the weights of layers that save others in their place, as LoRA does."""
    found = []
    for layer in inner_layers(model):
        saved: dict[str, Any] = {}
        layer.save_own_variables(saved)
        own = _own_weights(layer)
        if not {id(v) for v in own} <= {id(value) for value in saved.values()}:
            found += own
    return found


def assign_after_loading(model: keras.Model, values: Mapping[int, Any]) -> None:
    """Assign weights by their positions in `model`, which Keras loads from a file.

    What layers load that Keras loads after the optimizer is replaced once.
    """
    weights = {id(model.weights[i]): value for i, value in values.items()}
    loaded = next(from_file("visited_saveables"), set())  # `id`s
    for layer in inner_layers(model):
        own = [variable for variable in _own_weights(layer) if id(variable) in weights]

        def assign(own: Sequence[keras.Variable] = own) -> None:
            for variable in own:
                variable.assign(weights[id(variable)])

        assign()
        if own and layer is not model and id(layer) not in loaded:

            def replaced(store: Any, layer: Any = layer, assign: Any = assign) -> None:
                object.__delattr__(layer, "load_own_variables")
                layer.load_own_variables(store)
                assign()

            object.__setattr__(layer, "load_own_variables", replaced)


def input_signature(model: keras.Model) -> list[Any]:
    """Return the `input_signature` with which Keras exports `model`, or raise."""
    # Keras wants a call in this process, which a model from a file does not have.
    if isinstance(model, keras.Sequential | keras.Function):
        return export_utils.get_input_signature(model)
    signature = export_utils._infer_input_signature_from_model(model)
    if not signature:
        raise ValueError(
            "Argument `input_signature` must be given for a model that was built "
            "without inputs: [keras.InputSpec(shape=(None, 5), dtype='float32')], "
            f"where None is the number of examples. Received: model={model}"
        )
    return signature


# Files of models: what they hold, and what Keras does not say while it reads them.


def portable(config: dict[str, Any]) -> dict[str, Any]:
    """Return a compile configuration for every backend."""
    # Keras saves what "auto" became: True on JAX. PyTorch then compiles for minutes.
    return config | {"jit_compile": "auto" if config.get("jit_compile") else False}


def made_again(
    name: str,
    config: dict[str, Any],
    custom_objects: dict[str, Any] | None = None,
) -> keras.Model:
    """Return the model of a configuration, which is the argument `name` of another one.

    After an error that is no `ValueError`, Keras would blame this package.
    """
    try:
        return keras.saving.deserialize_keras_object(config, custom_objects)
    except (NotImplementedError, TypeError) as error:
        kind = config["registered_name"] or config["class_name"]
        missing = re.findall(r"(Could not locate \w+ '([^']+)')", str(error))
        said = str(error).splitlines()[0]
        if missing:  # the class of a layer inside
            said, kind = missing[0]
        raise ValueError(
            f"Argument `{name}` of the saved model must be a model that Keras can make "
            "again from its configuration. Decorate its class and those of its own "
            "layers with `@keras.saving.register_keras_serializable()`, and import "
            "them before the file is loaded, or load it with `custom_objects={"
            f"{kind!r}: ...}}`. Received: class {kind!r}, and the error: {said}"
        ) from error


def model_in_file(optimizer: keras.optimizers.Optimizer) -> keras.Model | None:
    """Return the model that Keras saves or loads together with `optimizer`, or None."""
    for part in from_file("saveable"):
        if isinstance(part, keras.Model) and getattr(part, "optimizer", 0) is optimizer:
            return part
    return None


# A `fit` that runs: what Keras does not say of it, from the frames of its callers.


def _callers() -> Iterator[FrameType]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def fitting_frame(model: keras.Model | None = None) -> FrameType | None:
    """Return the frame of `model.fit`, by default of any model, or None."""
    for caller in _callers():
        if caller.f_code.co_name == "fit":
            fitted = caller.f_locals.get("self")
            if isinstance(fitted, keras.Model) and (model is None or fitted is model):
                return caller
    return None


def error_leaves_fit() -> bool:
    """Return whether an exception is on its way out of the `fit` that runs."""
    # An exception that the caller of `fit` is handling is another one.
    error = sys.exception()
    trace = None if error is None else error.__traceback__
    frame = fitting_frame()
    while trace is not None and trace.tb_frame is not frame:
        trace = trace.tb_next
    return trace is not None


_DATA = ("x", "y", "sample_weight", "class_weight", "shuffle")


def fitted_data(model: keras.Model) -> dict[str, Any] | None:
    """Return the data of a `model.fit` that runs, less the `validation_split`."""
    frame = fitting_frame(model)
    return None if frame is None else {name: frame.f_locals[name] for name in _DATA}


def data_of_step() -> Any:
    """Return the mini-batch of the training step that runs, None outside of one."""
    for caller in _callers():
        code = caller.f_code
        is_model = isinstance(caller.f_locals.get("self"), keras.Model)
        if is_model and code.co_name == "train_step":
            return caller.f_locals[code.co_varnames[1]]
    return None


def training_model(optimizer: keras.optimizers.Optimizer) -> keras.Model | None:
    """Return the Keras model whose training step runs with `optimizer`, or None.

    Keras does not tell an optimizer about its model. But the training step calls
    `scale_loss` and `apply`, and is then further up the stack.
    """
    for caller in _callers():
        model = caller.f_locals.get("self")
        if isinstance(model, keras.Model):
            used = getattr(model, "optimizer", None)
            if isinstance(used, keras.optimizers.LossScaleOptimizer):
                used = used.inner_optimizer
            if used is optimizer:
                return model
    return None


def from_file(name: str) -> Iterator[Any]:
    """Yield a local variable of the functions of Keras that save or load."""
    for caller in _callers():
        if name in caller.f_locals and "visited_saveables" in caller.f_locals:
            yield caller.f_locals[name]


# The training step.


def return_values(optimizer: keras.optimizers.Optimizer) -> None:
    """Give the variables of `optimizer` and its model their values on JAX.

    Between the steps of an epoch Keras keeps the values elsewhere.
    """
    if keras.backend.backend() != "jax":
        return
    model = training_model(optimizer)
    if model is not None:
        model.jax_state_sync()


@contextlib.contextmanager
def values_kept(model: keras.Model) -> Iterator[None]:
    """Undo that `predict` and `evaluate` take values out, after an error on JAX."""
    variables = [*model.variables, *model.metrics_variables]
    values = [variable._value for variable in variables]
    try:
        yield
    except BaseException:
        if any(variable._value is None for variable in variables):
            model.jax_state_sync()  # the values after the batches before
        for variable, value in zip(variables, values, strict=True):
            if variable._value is None:
                variable._value = value
        raise


def put_back_values() -> None:
    """Give the model of a `fit` its values again if its first step fails on JAX.

    If the step cannot be traced, nobody has used them, and Keras forgets them.
    """
    frame = fitting_frame()
    if frame is None or keras.backend.backend() != "jax" or not error_leaves_fit():
        return
    model = frame.f_locals["self"]
    variables = [
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    ]
    for group, values in zip(variables, frame.f_locals.get("state", ()), strict=False):
        for variable, value in zip(group, values, strict=False):
            if variable._value is None and not value.is_deleted():
                variable._value = value


def record_loss(model: keras.Model, loss: Any, examples: Any) -> None:
    """Add the loss of a mini-batch to the mean that `model` logs as "loss"."""
    # It is the first one of the public `metrics`, unless a subclass changes the list.
    model._loss_tracker.update_state(loss, sample_weight=examples)


def compiled_losses(model: keras.Model) -> list[tuple[keras.losses.Loss, float]]:
    """Return the losses that a built model makes of `model.loss`, and their weights."""
    compiled = network_of(model)._compile_loss
    if compiled is None or not compiled.built:
        return []
    return [
        (part.loss, 1.0 if part.loss_weights is None else part.loss_weights)
        for part in compiled._flat_losses
    ]


def compile_key(model: keras.Model) -> Any:
    """Return another object after each `model.compile`, also of new loss weights."""
    return model._compile_loss


class BuiltBeforeSteps:
    """A model that on TensorFlow is built before its first step is traced.

    A step that evaluates the model in a `keras.StatelessScope` cannot build it.
    """

    def _maybe_symbolic_build(
        self, iterator: Any = None, data_batch: Any = None
    ) -> None:
        # Keras calls this on TensorFlow alone.
        if iterator is not None:
            specs = iterator._distributed_dataset.element_spec
            data_batch = keras.tree.map_structure(
                lambda spec: keras.KerasTensor(tuple(spec.shape), spec.dtype.name),
                specs,
            )
        self._symbolic_build(data_batch=data_batch)  # type: ignore[attr-defined]


class TrainerHooks(BuiltBeforeSteps):
    """A model that trains several models of the architecture of `template`."""

    template: keras.Model
    build_for_training: Callable[[], None]  # the metrics and the optimizer
    log_names: Callable[[], list[str]]  # in the order of `evaluate`

    def _symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        self.template._symbolic_build(iterator=iterator, data_batch=data_batch)
        self.build_for_training()

    def train_step(self, *given: Any) -> Any:
        return self._step(*given, training=True)

    def test_step(self, *given: Any) -> Any:
        return self._step(*given, training=False)

    def compile_steps(self, is_wanted: bool) -> None:
        """Let training steps be compiled by the backend, if Keras does not do it."""

    def _flatten_metrics_in_order(self, logs: dict[str, Any]) -> Any:
        values = [logs[name] for name in self.log_names()]
        return values[0] if len(values) == 1 else values


# Variables and optimizers.


def layout_of(variable: keras.Variable) -> Any:
    return getattr(variable, "_layout", None)


def stored_value(variable: keras.Variable) -> Any:
    """Return the tensor of a variable; in a `StatelessScope`, `value` is another."""
    return variable._value


@contextlib.contextmanager
def any_number_of_rows(variables: Sequence[keras.Variable]) -> Iterator[None]:
    """Let stacked variables take the values of some of the chains, in a scope."""
    shapes = [variable._shape for variable in variables]
    for variable, shape in zip(variables, shapes, strict=True):
        variable._shape = (None, *shape[1:])
    try:
        yield
    finally:
        for variable, shape in zip(variables, shapes, strict=True):
            variable._shape = shape


# The methods with which Keras' optimizers write to `tf.Variable`s.
_WRITERS = (
    "assign",
    "assign_add",
    "assign_sub",
    "_backend_update_step",
    "_apply_weight_decay",
)


@contextlib.contextmanager
def writable_optimizer(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """Let an optimizer write to Keras variables on TensorFlow, in a scope.

    So it obeys a `keras.StatelessScope`. By itself it refuses `stateless_apply`.
    """
    for name in _WRITERS:
        method = getattr(BaseOptimizer, name).__get__(optimizer)
        object.__setattr__(optimizer, name, method)
    # `_var_key` of TensorFlow reads `variable.value`, which is a tensor in a scope.
    key = "_var_key"
    object.__setattr__(optimizer, key, lambda v: stored_value(v)._unique_id)
    try:
        yield
    finally:
        for name in (*_WRITERS, key):
            object.__delattr__(optimizer, name)


@contextlib.contextmanager
def any_memory_format() -> Iterator[None]:
    """Let Keras' convolutions run under `torch.func.vmap`, in a scope.

    They ask how their operands lie in memory, and a tensor in there has no answer.
    """
    from keras.src.backend.torch import nn

    name = "_maybe_convert_to_channels_last"
    asks = getattr(nn, name, None)  # the oldest Keras that we take does not ask
    if asks is None:
        yield
        return
    setattr(nn, name, lambda tensor: tensor)
    try:
        yield
    finally:
        setattr(nn, name, asks)
