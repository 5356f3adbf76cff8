"""How the stacked weights of an ensemble lie on several devices."""

import contextlib
from collections.abc import Iterator

import keras

from keras_mhmcmc import _backend


@contextlib.contextmanager
def layout_of_members(path: str, rank: int, weight: keras.Variable) -> Iterator[None]:
    """Give a new stacked weight the layout of one member, with None in front.

    A pattern such as ".*hidden.*kernel.*" in a `keras.distribution.LayoutMap` describes
    the weight of a model. It also matches the path of the stacked weight, which has one
    axis more. A pattern for all axes of the stacked weight is taken as it is.

    Args:
        path: of the stacked weight.
        rank: number of its axes.
        weight: the weight of the member.
    """
    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.ModelParallel):
        yield
        return
    mesh = distribution.device_mesh
    found = distribution.get_tensor_layout(path) or _backend.layout_of(weight)
    is_stackable = (
        found is not None and found.device_mesh is mesh and len(found.axes) == rank - 1
    )
    if not is_stackable:
        yield
        return
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*"] = keras.distribution.TensorLayout((None, *found.axes), mesh)
    name = distribution.batch_dim_name
    with keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name=name
    ).scope():
        yield
