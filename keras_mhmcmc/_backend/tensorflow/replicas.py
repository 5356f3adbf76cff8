"""TensorFlow: one chain that all replicas of a `tf.distribute` strategy move."""

import tensorflow as tf

__all__ = ["on_each_replica", "over_replicas", "refuse_replicas", "refuse_strategy"]


def refuse_replicas(name):
    strategy = tf.distribute.get_strategy()
    if _are_several(strategy):
        raise ValueError(
            f"`{name}` must be made outside of `strategy.scope()`: it runs on one "
            "device. For chains on several devices, start a process for each, with a "
            "seed and a `directory` of its own for `mh.PosteriorSamples`. Received: "
            f"{_described(strategy)}."
        )


def refuse_strategy(variables):
    """Raise a `ValueError` for a strategy of several devices that is not mirrored."""
    strategy = tf.distribute.get_strategy()
    made = [strategy.extended.variable_created_in_scope(v.value) for v in variables]
    if not all(made):
        path = variables[made.index(False)].path
        raise ValueError(
            "A sampler and its model must be made, and the model compiled, inside of "
            f"`with strategy.scope():`. Received: the variable {path}, made without "
            f"{_described(strategy)}."
        )
    is_mirrored = isinstance(strategy, tf.distribute.MirroredStrategy)
    if is_mirrored or not _are_several(strategy):
        return
    raise ValueError(
        "A sampler runs on several devices of TensorFlow with "
        "`tf.distribute.MirroredStrategy` alone. For independent chains, start several "
        "processes without a strategy, each with a seed and a `directory` of its own "
        f"for `mh.PosteriorSamples`. Received: {_described(strategy)}."
    )


def _are_several(strategy):
    is_asynchronous = isinstance(strategy, tf.distribute.ParameterServerStrategy)
    return is_asynchronous or strategy.num_replicas_in_sync > 1


def _described(strategy):
    replicas = strategy.num_replicas_in_sync
    return f"{type(strategy).__name__} with {replicas} replicas"


def over_replicas(gradients, loss, changes):
    # Keras divides the loss of each replica by their number: both are sums.
    context = _context_of_several()
    if context is None:
        return gradients, loss
    losses = [] if loss is None else [loss]
    total = tf.distribute.ReduceOp.SUM
    sums = context.all_reduce(total, [*gradients, *losses])
    count = len(gradients)
    return sums[:count], None if loss is None else sums[count]


def on_each_replica(update, weights):
    """Return `update(gradient, loss, rate)`, which updates the copies of all replicas.

    It runs as the update of the first of `weights`. There, TensorFlow reads and writes
    the copies of one replica, whatever the variable.
    """
    context = _context_of_several()
    if context is None:
        return update

    def update_all(strategy, *arguments):
        def update_one(_, *arguments):
            update(*arguments)

        first = weights[0].value
        strategy.extended.update(first, update_one, args=arguments, group=False)

    return lambda *arguments: context.merge_call(update_all, args=arguments)


def _context_of_several():
    """Return the context of this replica, or None if there are no other replicas."""
    context = tf.distribute.get_replica_context()
    is_alone = context is None or context.num_replicas_in_sync == 1
    return None if is_alone else context
