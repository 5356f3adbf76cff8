"""Errors that every backend raises for the same reason."""


class NotVectorizable(Exception):
    """A model that cannot be evaluated for all chains in one pass."""
