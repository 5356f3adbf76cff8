"""Plots of the acceptance rates of Metropolis-Hastings samplers by epoch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHARES = {
    "acceptance": "all proposals",
    "forward_acceptance": "forward, down the gradient",
    "backward_acceptance": "backward, up the gradient",
}


def acceptance(
    history: keras.callbacks.History | Mapping[str, npt.ArrayLike], axes: Any = None
) -> "Figure":
    """Plot the share of accepted proposals by epoch, and beta if it is adapted.

    Args:
        history: the result of `fit` with `mh.PosteriorSamples` among the callbacks, or
            its dict `history.history`. For an `mh.ParallelChains` pass
            `model.chain_history`, which plots a line for each chain. The entries
            `acceptance`, `forward_acceptance`, `backward_acceptance` and `beta` are
            used if they exist. Their shape is (epochs,) or (epochs, chains).
        axes: matplotlib `Axes`, two if there is a `beta`, otherwise one; or None for a
            new figure.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `history` has no `acceptance`, or the number of `axes` is wrong.

    Example:

    >>> figure = acceptance({"acceptance": [0.9, 0.4, 0.3], "beta": [1.0, 4.0, 6.0]})
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['accepted proposals (%)', 'beta (factor)']

    Reference: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with
    reversible SGLD proposal", section 2.3, for beta.
    """
    logs = history
    if isinstance(history, keras.callbacks.History):
        logs = history.history
    if not isinstance(logs, Mapping) or "acceptance" not in logs:
        received = sorted(logs, key=str) if isinstance(logs, Mapping) else history
        raise ValueError(
            "Argument `history` must be the result of `model.fit`, or its dict, with "
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
    panels[0].set_title("Accepted proposals")
    style.legend_below(panels[0])
    if count == 2:
        _lines(panels[1], epochs, values["beta"], 0, None)
        panels[1].set_ylabel("beta (factor)")
        panels[1].set_title("Beta: noise of backward moves\nover that of forward moves")
    for ax in panels:
        ax.set_xlabel("epoch")
        ax.grid(color=style.GREY, linewidth=0.6)
    figure: Figure = panels[0].figure
    return figure


def _by_epoch(name: str, values: npt.ArrayLike) -> Array:
    """Return the values as floats of shape (epochs, chains), or raise."""
    array = _validate.array(f"The entry {name!r} of `history`", values)
    if array.ndim not in (1, 2) or len(array) == 0:
        raise ValueError(
            f"Argument `history` must have entries of shape (epochs,) or (epochs, "
            f"chains). Received: {name!r} of shape {array.shape}"
        )
    return array if array.ndim == 2 else array[:, None]


def _lines(
    ax: "Axes", epochs: Array, values: Array, index: int, label: str | None
) -> None:
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
