"""Errors that the backends share."""


class NotVectorizable(Exception):
    """A model cannot be evaluated for all chains in one pass."""
