"""PyTorch: what a step saves on the host: memory, Keras' wrappers."""


def is_known(condition):
    """Whether a scalar is on the host, where reading it stops no queue."""
    return condition.device.type == "cpu"


class Donated(list):
    """Tensors in the memory of variables, that a sum with them may overwrite."""
