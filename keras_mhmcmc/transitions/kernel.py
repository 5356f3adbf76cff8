"""What a kernel for `mh.sample` is, and what a step gives it and takes from it."""

from typing import Any
from typing import NamedTuple

from keras_mhmcmc import _validate
from keras_mhmcmc.schedules import Schedule


class Step(NamedTuple):
    """What `Kernel.advance` is given besides the state."""

    energy: Any  # U at the point, nats, (K,)
    gradient: list  # of U/N at the point; empty for kernels that need none
    normals: list  # shaped like the position
    uniforms: Any  # (num_uniforms, K)
    number: Any  # of the step, from 0
    train_size: int
    energy_variance: Any = None  # of U's estimate, (K,), where a kernel uses it


class Current(NamedTuple):
    """Where chains are between the two halves of a step."""

    position: list
    gradient: list
    energy: Any  # (K,)
    memory: Any  # whatever else a kernel keeps


class Record(NamedTuple):
    """An evaluated position, and what the step says of it."""

    position: list
    energy: Any  # (K,)
    counts: dict  # name -> (K,), added up over the steps
    log_weight: Any = None  # (K,), of kernels that have weights


class Kernel:
    """Abstract: a transition kernel of K chains.

    A step has two halves, `decide` and `move`; `advance` is both.
    """

    uses_gradient = True
    # Whether a step needs the variance of the energy's estimate on its mini-batch.
    uses_energy_variance = False
    # Uniform draws that a step needs for each chain.
    num_uniforms = 2
    # Whether draws have importance weights.
    has_weights = False
    # Names of what a step counts.
    count_names = ("nonfinite",)

    def fit(self, train_size, batch_size):
        """This kernel with whatever follows from the data; None: there is no data."""
        return self

    def init(self, position):
        """The state before the first step, a named tuple of tensors and lists."""
        raise NotImplementedError

    def point(self, state):
        """The position to evaluate next."""
        raise NotImplementedError

    def decide(self, state, step):
        """Where the chains are after the evaluation, and the step's counts."""
        raise NotImplementedError

    def move(self, current, step):
        """The next state, from where the chains are."""
        raise NotImplementedError

    def energy_unit(self, number):
        """Nats of energy that decide at a step: a number, or None if none decides.

        Energies must be known to a fraction of it.
        """
        return None

    def report(self, state, info):
        """More for the draws' `info`, from the last state; it may warn."""
        return {}

    def tempered(self, temperature, learning_rate=None):
        """This kernel at another temperature, and learning rate where one is given."""
        raise NotImplementedError

    def advance(self, state, step):
        """The next state, and the `Record` of this step."""
        current, counts = self.decide(state, step)
        record = Record(current.position, current.energy, counts)
        return self.move(current, step), record


def at_step(value, number):
    """The value of a schedule at a step; anything else as it is."""
    return value(number) if isinstance(value, Schedule) else value


def checked_learning_rate(value, name="learning_rate"):
    if isinstance(value, Schedule):
        return value
    return _validate.number(
        name,
        value,
        _validate.NOT_NEGATIVE,
        hint="A `LearningRateSchedule` will do as well.",
    )


def checked_temperature(value, interval):
    if isinstance(value, Schedule):
        return value
    return _validate.number(
        "temperature",
        value,
        interval,
        hint="A `LearningRateSchedule` will do as well.",
    )
