"""The sampler that a model trains with, checked when `fit` begins."""

import keras

from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.base_options import refuse_loss_scaling
from keras_mhmcmc.fit.base_options import refuse_other_weights
from keras_mhmcmc.fit.sampler import Sampler


def checked_sampler(model: keras.Model) -> Sampler | None:
    """Return the sampler of `model`, or None with a warning for another optimizer.

    Chains of an `mh.ParallelChains` may use any optimizer: they are a deep ensemble.

    Raises:
        ValueError: Keras' loss scaling wraps the optimizer, or the optimizer has the
            state of another model.
    """
    optimizer = model.optimizer
    refuse_loss_scaling(model)
    if isinstance(optimizer, Sampler):
        refuse_other_weights(optimizer.sampled_variables, model)
        return optimizer
    if not isinstance(model, StackedModel):
        warn(
            f"The optimizer {type(optimizer).__name__} is not a sampler. The kept "
            "weights are iterates of training, not samples of a posterior. To sample, "
            "use an optimizer of `mh`, such as mh.SGHMC(...)."
        )
    return None
