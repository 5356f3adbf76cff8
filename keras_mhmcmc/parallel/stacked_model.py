"""Models whose weights are those of many members, stacked along a leading axis."""

import keras


class StackedModel(keras.Model):
    """Abstract: the weights of several models of one architecture.

    A final class has `template`, a model of that architecture, and `num_chains`.
    """

    def member_weights(self, arrays):
        """Of one array for each of `weights`, those of `template.weights`."""
        raise NotImplementedError

    def examples_seen(self):
        """The examples of this epoch so far, as Keras' mean of the loss counts them."""
        raise NotImplementedError
