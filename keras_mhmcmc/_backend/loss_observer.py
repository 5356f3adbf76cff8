"""Carry the training loss from `scale_loss` to `apply`."""


class LossObserver:
    """Abstract: the loss of a step, from where it is known to where it is used."""

    def __init__(self):
        self._loss = None

    def observe(self, loss):
        """Return `loss` unchanged, and keep its value for `take`."""
        raise NotImplementedError

    def keep(self, loss):
        """Keep a value of the loss that is not part of a differentiated function."""
        self._loss = loss

    def take(self, gradients):
        """Return the loss of the step with these gradients, or None.

        Each loss is handed out once.
        """
        loss, self._loss = self._loss, None
        return loss
