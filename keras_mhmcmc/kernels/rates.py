"""Check the learning rate of a kernel."""

from keras_mhmcmc import _validate
from keras_mhmcmc.schedules import Schedule


def required(learning_rate: float | Schedule) -> float | Schedule:
    """Return `learning_rate`, which every kernel requires.

    Raises:
        ValueError: the learning rate is neither a schedule nor a number of at least 0.
    """
    if isinstance(learning_rate, Schedule):
        return learning_rate
    hint = "A `LearningRateSchedule` will do as well."
    return _validate.number(
        "learning_rate", learning_rate, _validate.NOT_NEGATIVE, hint
    )
