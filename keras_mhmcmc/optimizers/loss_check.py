"""Look at the model that trains with a sampler, when its first step is near."""

import weakref
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc._warn import warn
from keras_mhmcmc.optimizers import base_options
from keras_mhmcmc.optimizers import compiled_loss


def _unknown() -> None:
    return None


class LossCheck:
    """Checks each loss that a model is compiled with once in each `fit`.

    Args:
        own: what the sampler checks besides.
        in_step: what it checks of a model that has been called. May be None.
        is_compared: whether the chain compares energies, which needs one loss.
    """

    def __init__(
        self,
        own: compiled_loss.Check,
        in_step: compiled_loss.Check | None,
        is_compared: bool,
    ) -> None:
        self._own, self._in_step, self._is_compared = own, in_step, is_compared
        self._is_step_checked = False
        self._model: Callable[[], keras.Model | None] = _unknown
        self._key: Any = None  # of the compilation that was checked
        self._first: Any = None  # tells the first loss
        self._has_told = False

    def look(
        self,
        optimizer: keras.optimizers.Optimizer,
        sampled: Sequence[keras.Variable],
        is_step: bool,
    ) -> None:
        """Raise a `ValueError` if the model that trains does not suit the sampler.

        On JAX an error in a step would empty the model. So `Optimizer.build` looks,
        too, which Keras calls before the first step.

        Args:
            optimizer: the sampler.
            sampled: the variables that it was built with.
            is_step: whether the model has been called in this step.
        """
        known = self._model()
        if known is not None and _backend.compile_key(known) is self._key:
            if is_step and self._in_step is not None and not self._is_step_checked:
                self._in_step(known)
                self._is_step_checked = True
            return
        model = _backend.training_model(optimizer)
        if model is None:
            if is_step:
                self._look_for_fit(optimizer)
            return
        self._own(model)
        base_options.refuse_loss_scaling(model)
        base_options.refuse_other_weights(sampled, model)
        compiled_loss.check_is_mean(model)
        if self._is_compared:
            self._first = compiled_loss.checked_as(self._first, model)
        self._model, self._key = weakref.ref(model), _backend.compile_key(model)
        self._is_step_checked = False
        if is_step:
            self.look(optimizer, sampled, is_step)

    def forget(self) -> None:
        """Look again in the next step: of another `fit`, perhaps of another model."""
        self._model = _unknown

    def _look_for_fit(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Warn, once, of a `fit` that does not know this optimizer."""
        if self._has_told or not _backend.is_fitting():
            return
        self._has_told = True
        warn(
            f"The sampler {optimizer.name!r} runs in a `fit`, but the model was not "
            "compiled with it. Keras does not tell it about the end of an epoch or of "
            "`fit`. Call its methods `check_epoch()` at the end of each epoch, and "
            "`settle()` before you read the weights."
        )
