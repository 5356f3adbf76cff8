"""Models whose weights are those of many members, stacked along a leading axis."""

from collections.abc import Sequence

import keras

from keras_mhmcmc._stored_model import StoredModel
from keras_mhmcmc._types import Array


class StackedModel(StoredModel):
    """Abstract: the weights of several models of one architecture."""

    num_chains: int

    @property
    def template(self) -> keras.Model:
        """Return the model that gives every chain its architecture."""
        raise NotImplementedError

    def member_weights(self, arrays: Sequence[Array]) -> list[Array]:
        """Return those of `template.weights`, given arrays for all of `weights`.

        Each array has a leading axis of chains, or leading axes (samples, chains).
        """
        raise NotImplementedError

    def examples_seen(self) -> int:
        """Return the number of examples of this epoch so far.

        It is the count in Keras' mean of the loss.
        """
        raise NotImplementedError
