"""The newest sample, whose own energy and weight the next step finds."""

import functools

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _backend
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.posterior.store import Store

_ENTRIES = 256  # numbers of each weight that are compared


class AwaitedSample:
    """The newest sample of a store, until its own energy and weight are known.

    A sample is kept before a step has evaluated it. Until then it has the energy and
    weight of the point before. The step that leaves the sample finds its own, and the
    sampler tells this object, which writes them to the store. If somebody gives the
    model other weights before this step, the energy would be that of other weights.
    """

    def __init__(self, store: Store, sampler: Sampler) -> None:
        self.sampler = sampler
        self._store = store
        self._state: npt.NDArray[np.float32] | None = None  # when it was kept
        self._is_marking = False

    def exists(self) -> bool:
        """Return whether the newest sample has yet to get its own energy."""
        records = self._store.records
        return self.sampler.built and len(records) > 0 and not records[-1].is_final

    def mark(self, iteration: int) -> None:
        """Await the energy of the state at `iteration`, which is about to be kept."""
        self._is_marking = True  # and whoever keeps the sample writes the store
        self.sampler.mark_sample(functools.partial(self._revise, iteration))
        self._is_marking = False

    def remember(self, state: npt.NDArray[np.float32]) -> None:
        """Remember the weights of the sample, in the form of `entries`."""
        self._state = state

    def resume(self, iteration: int) -> None:
        """Await the energy in a further `fit`, which starts at `iteration`."""
        if not self.exists():
            return
        newest = self._store.records[-1].iteration
        listener = functools.partial(self._revise, newest)
        if newest == iteration:
            # The checkpoint may be from just before the sample was marked.
            self.sampler.mark_sample(listener)
        else:
            energies = self.sampler.energies
            if energies.marked_at() == newest:
                energies.listen(listener)
            energies.notify()

    def check_weights(self, model: keras.Model, iteration: int) -> None:
        """Warn if the model has lost the weights of the sample of `iteration`.

        The sample is then awaited no more.
        """
        if self._state is None or not self.exists():
            return
        record = self._store.records[-1]
        if record.iteration != iteration:
            return
        state = entries(model)
        if state.shape != self._state.shape:  # other layers are trainable now
            return
        if not np.array_equal(state, self._state, equal_nan=True):
            self.sampler.energies.forget()
            unknown = np.full(np.shape(record.log_weight), np.nan).tolist()
            self._store.revise_last(record._replace(energy=unknown, is_final=True))
            warn(
                f"The model no longer has the weights of iteration {iteration}, whose "
                "sample was kept: a callback or `set_weights` has changed them. To "
                "continue from other weights, compile with a new sampler, and use a "
                "new `mh.PosteriorSamples`."
            )

    def _revise(self, iteration: int) -> None:
        """Record the energy of the sample of `iteration`, which is now known."""
        if self.exists() and self._store.records[-1].iteration == iteration:
            record = self._store.records[-1].revised_by(self.sampler)
            self._store.revise_last(record)
            if not self._is_marking:
                self._store.write()


def entries(model: keras.Model) -> npt.NDArray[np.float32]:
    """Return some numbers of each trainable weight, shape (chains, numbers)."""
    rows = []
    for variable in model.trainable_variables:
        array = np.asarray(_backend.host_value(variable))
        chains = len(array) if isinstance(model, StackedModel) else 1
        row = array.reshape(chains, -1)
        row = row[:, :: max(row.shape[1] // _ENTRIES, 1)]
        rows.append(row.astype("float32"))
    return np.concatenate(rows, axis=1) if rows else np.zeros((1, 0), "float32")
