"""Pictures of what a Metropolis-Hastings sampler reports by epoch."""

import keras
import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.plots import style

SHARES = {
    "acceptance": "all proposals",
    "forward_acceptance": "forward, down the gradient",
    "backward_acceptance": "backward, up the gradient",
}


def acceptance(history, axes=None):
    """The share of accepted proposals by epoch, and beta where it is adapted.

    Args:
        history: what `fit` returned, or its dict `history.history`, of a run with
            `mh.PosteriorSamples` among its callbacks; or, of an `mh.ParallelChains`,
            `model.chain_history`, which draws a line for each chain. Uses the entries
            `acceptance`, `forward_acceptance`, `backward_acceptance` and `beta` that it
            finds, of shape (epochs,) or (epochs, chains).
        axes: matplotlib `Axes`, two where there is a `beta`, else one; None makes a
            figure.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `history` has no `acceptance`, or `axes` do not fit.

    Example:

    >>> figure = acceptance({"acceptance": [0.9, 0.4, 0.3], "beta": [1.0, 4.0, 6.0]})
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['accepted proposals (%)', 'beta (factor)']

    Reference: of beta, Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with
    reversible SGLD proposal", section 2.3.
    """
    logs = history
    if isinstance(history, keras.callbacks.History):
        logs = history.history
    if not isinstance(logs, dict) or "acceptance" not in logs:
        received = sorted(logs, key=str) if isinstance(logs, dict) else history
        raise ValueError(
            "Argument `history` must be what `model.fit` returned, or its dict, with "
            "an entry 'acceptance'. Train with a Metropolis-Hastings sampler and with "
            "`mh.PosteriorSamples` among the callbacks. Received: "
            f"{_validate.shown(received)}"
        )
    values = {
        name: _by_epoch(name, logs[name]) for name in (*SHARES, "beta") if name in logs
    }
    epochs = np.arange(1, len(values["acceptance"]) + 1)
    if isinstance(history, keras.callbacks.History):
        epochs = np.array(history.epoch) + 1
    lengths = {name: len(value) for name, value in values.items()}
    if set(lengths.values()) != {len(epochs)}:
        raise ValueError(
            f"Argument `history` must have a value for each of {len(epochs)} epochs. "
            f"Received: {lengths}"
        )
    count = 2 if "beta" in values else 1
    panels = style.many_axes(axes, (1, count), size=(4.6, 3.8))[0]
    for index, (name, label) in enumerate(SHARES.items()):
        if name in values:
            _lines(panels[0], epochs, 100 * values[name], index, label)
    panels[0].set_ylim(-2, 102)
    panels[0].set_ylabel("accepted proposals (%)")
    panels[0].set_title("Proposals that are accepted")
    style.legend_below(panels[0])
    if count == 2:
        _lines(panels[1], epochs, values["beta"], 0, None)
        panels[1].set_ylabel("beta (factor)")
        panels[1].set_title("Beta: noise of backward moves\nover that of forward moves")
    for ax in panels:
        ax.set_xlabel("epoch")
        ax.grid(color=style.GREY, linewidth=0.6)
    return panels[0].figure


def _by_epoch(name, values):
    """The values as floats of shape (epochs, chains)."""
    values = _validate.array(f"The entry {name!r} of `history`", values)
    if values.ndim not in (1, 2) or len(values) == 0:
        raise ValueError(
            f"Argument `history` must have entries of shape (epochs,) or (epochs, "
            f"chains). Received: {name!r} of shape {values.shape}"
        )
    return values if values.ndim == 2 else values[:, None]


def _lines(ax, epochs, values, index, label):
    chains = values.shape[1]
    lines = ax.plot(
        epochs,
        values,
        color=style.COLOURS[index],
        linestyle=style.DASHES[index],
        marker=style.MARKERS[index] if len(epochs) <= 30 else None,
        markersize=4,
        linewidth=1.8 if chains == 1 else 0.8,
    )
    lines[0].set_label(label)
