"""Losses and metrics of an ensemble: those of its member."""

import warnings

import keras


def compile_like(ensemble, model, loss, is_from_logits):
    """Compiles `ensemble` for `evaluate` with what `model` is compiled with.

    Args:
        ensemble: the ensemble.
        model: a compiled model.
        loss: the loss, which the caller may have changed.
        is_from_logits: whether `model` outputs logits, and `ensemble` probabilities.
    """
    # The objects as they were given: not all of them are registered with Keras.
    config = model._compile_config.config
    ensemble.compile(
        loss=loss,
        loss_weights=config["loss_weights"],
        metrics=_again(config["metrics"], is_from_logits),
        weighted_metrics=_again(config["weighted_metrics"], is_from_logits),
    )


def _again(metrics, is_from_logits):
    """New metrics like these: their sums are not those of the model."""
    if isinstance(metrics, dict):
        return {name: _again(m, is_from_logits) for name, m in metrics.items()}
    if isinstance(metrics, list | tuple):
        # Lists of lists stay as long as the outputs that they belong to.
        again = [_again(metric, is_from_logits) for metric in metrics]
        return [metric for metric in again if metric is not None]
    if not isinstance(metrics, keras.metrics.Metric):
        return metrics  # names and functions have no state
    config = metrics.get_config()
    if is_from_logits and "from_logits" in config:
        config["from_logits"] = False
    try:
        return type(metrics).from_config(config)
    except (TypeError, ValueError) as error:
        warnings.warn(
            f"The metric {metrics.name!r} cannot be made again from its `get_config`, "
            "so the ensemble is compiled without it. Give its class a `get_config` "
            "with the arguments of its constructor, and register functions with "
            f"`keras.saving.register_keras_serializable`. Received: {error}",
            stacklevel=5,
        )
        return None
