"""`BayesianEnsemble`: train networks, sample from them, choose on held-out data."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Self

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import architecture
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.bayesian.choices import BY_NAME
from keras_mhmcmc.bayesian.choices import Choice
from keras_mhmcmc.bayesian.data import checked_weights
from keras_mhmcmc.bayesian.data import weights_of_outputs
from keras_mhmcmc.bayesian.fit import Fit
from keras_mhmcmc.bayesian.members import Plan
from keras_mhmcmc.bayesian.progress import Progress
from keras_mhmcmc.bayesian.report import Report
from keras_mhmcmc.bayesian.scores import Nats
from keras_mhmcmc.bayesian.scores import mean_of
from keras_mhmcmc.bayesian.scores import mixture
from keras_mhmcmc.bayesian.scores import nats_of
from keras_mhmcmc.bayesian.scores import nats_of_members
from keras_mhmcmc.bayesian.stored_kernel import Unstored
from keras_mhmcmc.bayesian.stored_kernel import config_of
from keras_mhmcmc.bayesian.stored_kernel import kernel_of
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.ensemble import WithEnsemble
from keras_mhmcmc.ensemble.ensemble import ensemble_of
from keras_mhmcmc.fit.compiled_loss import check_is_mean
from keras_mhmcmc.fit.compiled_loss import warn_of_no_likelihood
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.losses.likelihood import Likelihood
from keras_mhmcmc.parallel.checks import checked_optimizer
from keras_mhmcmc.samplers.base import Kernel

_ROWS = 1024  # examples of arrays that are evaluated at a time


@serializable
class BayesianEnsemble(WithEnsemble):
    """Networks that are trained, sampled from, and averaged, in one call.

    `fit` has three phases. It trains `num_members` copies of `model` side by side, each
    until the held-out examples say stop. From there it runs chains that sample the
    posterior exp(-U/T), with U in nats the negative log-likelihood of the training data
    plus that of a normal prior. Last, the held-out examples choose the temperature, the
    prior, and what is averaged: the members, the samples, or both. So the result is no
    worse than a deep ensemble by more than the noise of the held-out examples.

    Args:
        model: a `keras.Model`, which gives the architecture; the data of `fit` build
            it, if need be. Or a list of trained ones, which are the members.
        num_members: trained networks, and chains. Defaults to None: 4; where the chains
            take gradients of all data 8, and 16 up to 1e6 examples times weights.
        sampler: "auto", a kernel of `mh.kernels`, or an optimizer of this package that
            samples. "auto" takes microcanonical Langevin dynamics for regressions where
            a gradient of all data is cheap, else "psgld". These chains and those of
            kernels see the network without dropout. A name, "sgld", "psgld", "sghmc",
            "sgnht" or "sgmclmc", lets `fit` choose the rate, too. Defaults to "auto".
        temperature: T, or "auto": 1 for regressions, chosen for classes.
        prior: standard deviation of the normal prior of each weight, or "auto": 1 for
            regressions, chosen for classes.
        max_samples: samples that are kept, or None: 200 to 1,000, fewer if large.
        seed: integer that makes the run repeatable. Defaults to None, which draws one.
        name: name of the model. Defaults to "bayesian_ensemble".
        averaged: the networks of an ensemble that was saved. Defaults to None.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> x = np.linspace(-1.0, 1.0, 64)[:, None]
    >>> y = x + 0.1 * np.random.default_rng(0).normal(size=(64, 1))
    >>> network = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> ensemble = mh.BayesianEnsemble(network, num_members=2, seed=0)
    >>> ensemble.compile(loss=mh.losses.GaussianNLL(0.1))
    >>> history = ensemble.fit(x, y, epochs=20, sampling=0.1, verbose=0)
    >>> ensemble.predict(x, verbose=0).shape
    (64, 1)

    Reference: Sommer and others (2025), "Microcanonical Langevin ensembles: advancing
    the sampling of Bayesian neural networks", for chains from trained networks.
    """

    def __init__(
        self,
        model: keras.Model | Sequence[keras.Model],
        num_members: int | None = None,
        *,
        sampler: Any = "auto",
        temperature: float | str = "auto",
        prior: float | str = "auto",
        max_samples: int | None = None,
        seed: int | None = None,
        name: str = "bayesian_ensemble",
        averaged: Ensemble | None = None,
    ) -> None:
        super().__init__(name=_validate.scope_name(name))
        given = list(model) if isinstance(model, list | tuple) else []
        for one in given or [model]:
            hint = "a `keras.Model`, or a list of trained ones"
            _validate.instance("model", one, keras.Model, hint)
            if given and not one.built:
                raise ValueError(
                    "Argument `model` must be a list of trained models, which are the "
                    f"members. Received: model={one} in the list, which is not built"
                )
        if given:
            model, num_members = given[0], len(given)
        if num_members is not None:
            num_members = _validate.integer("num_members", num_members, 1)
        self.num_members = num_members
        hint = (
            "a kernel of `mh.kernels`, an optimizer that samples, or a name: auto, "
            f"{', '.join(BY_NAME)}"
        )
        is_name = isinstance(sampler, str) and sampler.lower() in BY_NAME
        sampler = sampler.lower() if is_name else sampler
        if not is_name and not _is_auto(sampler):
            _validate.instance("sampler", sampler, (Sampler, Kernel, Unstored), hint)
        for label, value in (("temperature", temperature), ("prior", prior)):
            if not _is_auto(value):
                _validate.number(label, value, _validate.POSITIVE, ' Or pass "auto".')
        if max_samples is not None:
            _validate.integer("max_samples", max_samples, 1)
        self.sampler, self.temperature, self.prior = sampler, temperature, prior
        self.max_samples = max_samples
        self.seed = None if seed is None else _validate.seed(seed)
        self._untracked = _Untracked(model, given)
        self._averaged = averaged
        self.report = Report()
        self.built = True

    @property
    def model(self) -> keras.Model:
        """Return the network that gives the architecture."""
        return self._untracked.model

    @property
    def ensemble(self) -> Ensemble:
        """Return the `mh.Ensemble` of what is averaged.

        Raises:
            ValueError: before `fit`.
        """
        if self._averaged is None:
            raise ValueError(
                "This ensemble has no networks yet: call `compile` and `fit` first."
            )
        return self._averaged

    # Training.

    def compile(
        self,
        loss: Any = None,
        optimizer: Any = "adamw",
        metrics: Any = None,
        **options: Any,
    ) -> None:
        """Set the likelihood, and how members are trained.

        Args:
            loss: a mean negative log-likelihood, such as `mh.losses.GaussianNLL()` or a
                cross-entropy.
            optimizer: a name, for which `fit` tries several rates; or an optimizer of
                Keras with a rate of its own. Defaults to "adamw".
            metrics: as for `keras.Model.compile`.
            options: as for `keras.Model.compile`.
        """
        if loss is None:
            raise ValueError(
                "Argument `loss` must be a mean negative log-likelihood, such as "
                "mh.losses.GaussianNLL() for a regression, or "
                "keras.losses.SparseCategoricalCrossentropy(from_logits=True) for "
                "classes. Received: loss=None"
            )
        checked_optimizer(optimizer)
        super().compile(loss=loss, metrics=metrics, **options)
        self._untracked.compiled = {"loss": loss, "metrics": metrics, **options}
        self._untracked.optimizer = optimizer
        self.model.compile(optimizer="sgd", loss=loss, metrics=metrics, **options)
        check_is_mean(self.model)
        warn_of_no_likelihood(self.model)

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        epochs: int | None = None,
        batch_size: int = 32,
        validation_split: float | None = None,
        validation_data: tuple[Any, Any] | None = None,
        sampling: float | str = "auto",
        refit: bool = True,
        sample_weight: Any = None,
        class_weight: dict[int, float] | None = None,
        callbacks: Any = None,
        directory: str | None = None,
        verbose: int | str = "auto",
    ) -> Report:
        """Train, sample and choose. Return the report.

        Args:
            x: inputs: an array, or a dict or tuple of arrays, with N examples. Or a
                `tf.data.Dataset`, a `DataLoader`, or a `keras.utils.PyDataset` of
                pairs (x, y), which is read into memory once.
            y: targets, with N examples.
            epochs: the most epochs of a member. Defaults to None: 100, or 30 for
                classes, and at least 6,000 mini-batches.
            batch_size: examples of a mini-batch. Defaults to 32.
            validation_split: part of the examples that is held out, drawn with `seed`.
                Defaults to None: 0.1, or 1,000 examples for classes, a third at most.
            validation_data: `(x, y)` that are held out in its place.
            sampling: steps of the chains, as a multiple of the mini-batches of a
                member; 0 is a deep ensemble. Defaults to "auto": as many, and 3,000 to
                5,000 after the warm-up where all data fit in a gradient. For classes
                the members train for as much longer, too, unless that is clearly worse.
            refit: whether the last chains, and for classes the members, learn from
                the held-out examples as well, after all is chosen. Defaults to True.
            sample_weight: number of times that an example counts, (N,). Held-out
                examples count once.
            class_weight: the same for each class; others count once. Defaults to None.
            callbacks: of Keras. Each round of members, and each trial, is an epoch to
                them, with the logs "loss" and "val_loss", in nats of an example. One
                that sets `stop_training` ends `fit` as Ctrl-C does.
            directory: folder for all that is finished. The same call goes on from
                there after a kill, and gives what it would have given. Defaults to
                None.
            verbose: 0 is silent. Defaults to "auto", which tells each phase.

        Ctrl-C ends `fit` with what was best so far by the held-out examples.

        Raises:
            ValueError: an argument is outside its range, or the data do not fit.
        """
        if self._untracked.compiled is None:
            raise ValueError("This ensemble has no loss yet: call `compile` first.")
        if isinstance(self.sampler, Unstored):
            self.sampler.refuse()
        batch_size = _validate.integer("batch_size", batch_size, 1)
        if epochs is not None:
            epochs = _validate.integer("epochs", epochs, 1)
        _validate.choice("refit", refit, (True, False))
        if not _is_auto(sampling):
            sampling = _validate.number("sampling", sampling, _validate.NOT_NEGATIVE)
        seed = self.seed
        if seed is None:
            if directory is not None:
                raise ValueError(
                    "Argument `directory` of `fit` needs a `seed` of the ensemble, so "
                    "that a fit can go on: BayesianEnsemble(model, seed=0). Received: "
                    f"directory={directory!r}, seed=None"
                )
            seed = random.randint(0, 2**31 - 1)
        progress = Progress(self, callbacks, verbose)
        plan = Plan(0, batch_size, epochs)
        compiled, optimizer = self._untracked.compiled, self._untracked.optimizer
        run = Fit(self.model, compiled, optimizer, plan, seed, progress, refit)
        run.divide(x, y, sample_weight, class_weight, validation_split, validation_data)
        if directory is not None:
            arguments = {
                "model": json.dumps(self.get_config() | {"averaged": None}),
                "compile": json.dumps(self.get_compile_config()),
                "epochs": repr(epochs),
                "batch_size": repr(batch_size),
                "sampling": repr(sampling),
                "refit": repr(refit),
            }
            run.keep_in(directory, arguments)
        progress.begin()
        choice = Choice(self.sampler, self.temperature, self.prior, self.max_samples)
        phase = run.phase(choice)
        trained = self._untracked.trained
        count = self.num_members or (run.usual_count if sampling else 4)
        members = run.take(trained) if trained else run.train(count)
        average = run.sample(phase, members, choice, sampling)
        self.report = run.report
        self._averaged = ensemble_of(self.model, average.stacked, average.weights, None)
        self.predict_function = self.test_function = None
        progress.end()
        return self.report

    def get_compile_config(self) -> dict[str, Any]:
        """Return the arguments of `compile`."""
        optimizer = self._untracked.optimizer
        if not isinstance(optimizer, str):
            optimizer = keras.saving.serialize_keras_object(optimizer)
        return super().get_compile_config() | {"optimizer": optimizer}

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile with the result of `get_compile_config`, from any backend."""
        config = keras.saving.deserialize_keras_object(_backend.portable(config))
        self.compile(**config)

    # Predictions.

    def call(self, inputs: Tensor) -> Tensor:
        """Return the weighted mean of the networks' outputs."""
        return self.ensemble(inputs)

    def predict(self, x: Any, batch_size: int | None = None, **options: Any) -> Any:
        """Return the predictive mean: of probabilities for classes, else of targets.

        The arguments are those of `keras.Model.predict`.
        """
        if not self._has_densities:
            return super().predict(x, batch_size, **options)
        return self._mean(self.predict_members(x, batch_size, **options))

    @property
    def _has_densities(self) -> bool:
        losses = keras.tree.flatten(self.loss)
        return any(isinstance(loss, Likelihood) for loss in losses)

    def _mean(self, outputs: Any) -> Any:
        """Return the predictive mean, given the outputs of each network."""

        def mean(loss: Any, output: Array) -> Array:
            if isinstance(loss, Likelihood):
                positions = output.reshape(len(output), -1, output.shape[-1])
                means = loss.mixture(positions).mean
                output = means.reshape(*output.shape[:-1], -1)
            return np.tensordot(self.ensemble.averaging_weights, output, axes=1)

        pairs = zip(Nats(self.model).losses, keras.tree.flatten(outputs), strict=True)
        return keras.tree.pack_sequence_as(outputs, [mean(*pair) for pair in pairs])

    def evaluate(
        self,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        return_dict: bool = False,
        **options: Any,
    ) -> Any:
        """Return the loss of the mixture, and metrics of the predictive mean.

        The arguments are those of `keras.Model.evaluate`. With a loss of `mh.losses`,
        `sample_weight` has one number for each example, and `steps` and `callbacks` are
        refused with a `TypeError`.
        """
        if not self._has_densities:
            return self.ensemble.evaluate(
                x, y, batch_size, return_dict=return_dict, **options
            )
        given = x, y, options.pop("sample_weight", None)
        total, size, averaging = 0.0, 0, self.ensemble.averaging_weights
        likelihood, logs = Nats(self.ensemble), {}
        self.ensemble.reset_metrics()
        for x, y, weights in _data.batches(
            *given, batch_size=_ROWS, needs_targets=True
        ):
            outputs = self.predict_members(x, batch_size, **options)
            means = keras.tree.map_structure(
                lambda mean: ops.convert_to_tensor(mean, keras.config.floatx()),
                self._mean(outputs),
            )
            if _backend.makes_masks(self.model):
                _backend.give_masks(means, self.model, x)
            count = len(keras.tree.flatten(y)[0])
            each = checked_weights(weights, count)
            parts = map(keras.tree.flatten, (y, outputs, means))
            for loss, weight, target, output, mean in zip(
                likelihood.losses, likelihood.weights, *parts, strict=True
            ):
                if loss is None:
                    continue
                mask, share = _backend.mask_of(mean), 1.0
                if isinstance(loss, Likelihood):

                    def call(y: Any, o: Any, m: Any, loss: Any = loss) -> Tensor:
                        return nats_of(loss, y, o, *m)[0]

                    nats = nats_of_members(call, target, output, [mask])
                    nlls = mixture(nats, averaging)
                else:
                    nats, share = nats_of(loss, target, mean, mask)
                    nlls = mean_of(ops.convert_to_numpy(nats))
                total += weight * float(np.sum(each * nlls)) / float(share)
            size += count
            if weights is not None:
                ranks = [None] * len(likelihood.losses)
                weights = weights_of_outputs(each, ranks, means)
            logs = self.ensemble.compute_metrics(None, y, means, weights)
        found = {"loss": total / size}
        found |= {name: float(v) for name, v in logs.items() if name != "loss"}
        values = list(found.values())
        return found if return_dict else values if len(values) > 1 else values[0]

    def predict_members(
        self, x: Any, batch_size: int | None = None, verbose: int | str = 0
    ) -> Any:
        """Return the outputs of each network, as `mh.Ensemble.predict_members` does."""
        return self.ensemble.predict_members(x, batch_size, verbose)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor, and the size of what is averaged."""
        sampler = self.sampler
        if isinstance(sampler, Kernel | Unstored):
            sampler = config_of(sampler)
        elif not isinstance(sampler, str):
            sampler = keras.saving.serialize_keras_object(sampler)
        averaged = self._averaged
        return {
            "model": architecture(self.model),
            "num_members": self.num_members,
            "sampler": sampler,
            "temperature": self.temperature,
            "prior": self.prior,
            "max_samples": self.max_samples,
            "seed": self.seed,
            "name": self.name,
            "averaged": averaged and keras.saving.serialize_keras_object(averaged),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        """Return the ensemble with these arguments. Its weights are loaded later."""
        parts: dict[str, Any] = {
            name: config[name]
            if not isinstance(config[name], dict)
            else kernel_of(config[name])
            if "kernel" in config[name]
            else keras.saving.deserialize_keras_object(config[name], custom_objects)
            for name in ("sampler", "averaged")
        }
        # Keras finds weights by the objects that hold them: one network, as saved.
        model = parts["averaged"] and parts["averaged"].member
        model = model or _backend.made_again("model", config["model"], custom_objects)
        return cls(**(config | parts | {"model": model}))


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


@dataclass
class _Untracked:
    """What Keras must not track as parts of the ensemble."""

    model: keras.Model
    trained: list[keras.Model]  # members that the user has trained
    compiled: dict[str, Any] | None = None
    optimizer: Any = "adamw"
