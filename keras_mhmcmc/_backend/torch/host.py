"""PyTorch: scalars that are on the host, and memory that may be overwritten."""


def is_known(condition):
    """Return whether a scalar is on the host, where reading it stops no queue."""
    return condition.device.type == "cpu"


class Donated(list):
    """Tensors in the memory of variables, that a sum with them may overwrite."""
