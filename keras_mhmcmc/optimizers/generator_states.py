"""The states of a model's random generators, kept in the sampler's files.

Keras saves the weights of a model and not where the generators of `Dropout` and the
like stand: a loaded model would draw its first masks once more.
"""

from keras import ops

_PREFIX = "generator_"


class GeneratorStates:
    """Variables that are not the optimizer's, saved and loaded with its own."""

    def __init__(self):
        self._variables = []
        self._loaded = {}  # by name, for variables that are not known yet

    def follow(self, model):
        """Makes them those of `model`, and gives them what was loaded before."""
        kept = {id(variable) for variable in model.weights}
        self._variables = [v for v in model.variables if id(v) not in kept]
        self._restore()

    def save(self, store):
        """Adds them to what is saved."""
        states = {_name(i): variable for i, variable in enumerate(self._variables)}
        for name, state in (self._loaded or states).items():
            store[name] = ops.convert_to_numpy(state)

    def load(self, store):
        """Takes them out of what was saved; returns the rest."""
        names = [name for name in store.keys() if name.startswith(_PREFIX)]  # noqa: SIM118
        self._loaded = {name: store[name][()] for name in names}
        self._restore()
        return {name: store[name] for name in store.keys() if name not in names}  # noqa: SIM118

    def _restore(self):
        names = [_name(i) for i in range(len(self._variables))]
        if sorted(names) == sorted(self._loaded):
            for name, variable in zip(names, self._variables, strict=True):
                variable.assign(self._loaded[name])
            self._loaded = {}


def _name(index):
    return f"{_PREFIX}{index}"
