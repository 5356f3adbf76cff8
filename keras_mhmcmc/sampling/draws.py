"""`Draws`: what `mh.sample` returns, with the state that a later run starts from."""

from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

import keras
import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc import diagnostics
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.samplers.parts import importance

if TYPE_CHECKING:
    import pandas

    from keras_mhmcmc.sampling.equi_energy import RingTable


class ChainState(NamedTuple):
    """Where chains stopped.

    Pass it as `init` to `mh.sample`. The chains go on as if they had not stopped. The
    state consists of numpy arrays and numbers, and can be pickled.
    """

    values: list[Array]  # the leaves of the algorithm's state
    structure: Any  # of a position, with 0 for each tensor
    shapes: list[tuple[int, ...]]  # of the position's tensors, the chain axis first
    steps: int  # so far
    seed: int
    kernel: str = ""  # that moved the chains, by the names of its parts


class Draws:
    """Draws of K chains.

    Attributes:
        position: the draws, in the structure of a position; arrays of shape
            (chain, draw, ...).
        weights: importance weights with mean 1 over all draws, shape (chain, draw).
        info: dict of arrays. `energy` is U of each draw in nats, on the mini-batch of
            its step, shape (chain, draw). Kernels that make paths (`hmc`, `mclmc`,
            `amagold`), or whose batches have a random size (such as `tuna`), have none.
            The latter have `batch_size`, the mean number of examples of a step.
            `acceptance` and other counts cover the steps after the burn-in, shape
            (chain,). Contour kernels add `masses` and `visits` of the subregions, shape
            (chain, partitions), and with `partition="auto"` `energy_min` and
            `energy_gap`, shape (chain,).
        state: a `ChainState`, for `init` of a later run.
        interrupted: whether Ctrl-C stopped the run.
        levels: with `keep_all` of `mh.replica_exchange` and `mh.equi_energy`, a tuple
            of `Draws`, one for each temperature, the coldest first. Otherwise ().
        rings: a `RingTable` from `mh.equi_energy`. Otherwise None.
    """

    def __init__(
        self,
        position: Any,
        log_weights: Array | None,
        info: dict[str, Any],
        state: ChainState,
        interrupted: bool = False,
        levels: tuple["Draws", ...] = (),
        rings: "RingTable | None" = None,
    ) -> None:
        self.position = position
        shape = keras.tree.flatten(position)[0].shape[:2]
        self.weights: Array = np.broadcast_to(1.0, shape)
        if log_weights is not None and log_weights.size > 0:
            weights = np.exp(np.asarray(log_weights, "float64") - log_weights.max())
            self.weights = weights / weights.mean()
        self.info = info
        self.state = state
        self.interrupted = interrupted
        self.levels = levels
        self.rings = rings

    @property
    def num_chains(self) -> int:
        """Number of chains."""
        return self.weights.shape[0]

    def __len__(self) -> int:
        """Return the number of draws of each chain."""
        return self.weights.shape[1]

    def __repr__(self) -> str:
        shapes = keras.tree.map_structure(lambda x: x.shape, self.position)
        parts = [
            f"chains={self.num_chains}",
            f"draws={len(self)}",
            f"position={shapes}",
        ]
        if "acceptance" in self.info:
            parts.append(f"acceptance={np.mean(self.info['acceptance']):.3f}")
        return f"Draws({', '.join(parts)})"

    def by_name(self) -> dict[str, Array]:
        """Return the draws as a dict from names to arrays (chain, draw, ...).

        A name is the path of keys in the position, or "position" for a single tensor.
        """
        return named_leaves(self.position)

    @property
    def weight_ess(self) -> float:
        """Effective sample size of the weights, from 1 to the number of all draws.

        The weighted draws are worth so many draws of equal weight. The dependence
        between neighbouring draws does not count here.
        """
        self._check_not_empty()
        return importance.effective_sample_size(self.weights)

    def resample(self, num_draws: int | None = None, seed: int = 0) -> Any:
        """Return draws of all chains with equal weights.

        Systematic resampling: a draw with n times the mean weight is taken n times,
        rounded up or down.

        Args:
            num_draws: how many to take. None takes as many as there are.
            seed: integer in [0, 2**31).

        Returns:
            Arrays of shape (num_draws, ...), in the structure of a position.

        Raises:
            ValueError: an argument is outside its range, or there are no draws.

        Reference: Kitagawa (1996), "Monte Carlo filter and smoother for non-Gaussian
        nonlinear state space models".
        """
        self._check_not_empty()
        uniform = np.random.default_rng(_validate.seed(seed)).uniform()
        if num_draws is None:
            num_draws = self.weights.size
        num_draws = _validate.integer("num_draws", num_draws, 1)
        chosen = importance.systematic(self.weights, uniform, num_draws)
        places = np.unravel_index(chosen, self.weights.shape)
        return keras.tree.map_structure(lambda x: x[places], self.position)

    def _check_not_empty(self) -> None:
        if self.weights.size == 0:
            raise ValueError(
                "There are no draws: the run was stopped before the end of its "
                "burn-in. Go on with `init=draws.state`."
            )

    def summary(self, names: str | list[str] | None = None) -> "pandas.DataFrame":
        """Return mean, sd, R-hat and effective sample sizes.

        The summary ignores importance weights. If there are any, take moments of the
        posterior from `resample`.

        Args:
            names: the arrays to take, as in `mh.diagnostics.summary`. None takes all.

        Returns:
            The table of `mh.diagnostics.summary`.

        Raises:
            ImportError: ArviZ or pandas is not installed.
        """
        if np.ptp(self.weights) > 0:
            warn(
                "The draws have importance weights, and the summary ignores them: it "
                "describes the flattened distribution. Take `draws.resample()` for "
                "moments of the posterior.",
            )
        return diagnostics.summary(self.by_name(), names)

    def to_arviz(self) -> Any:
        """Return the draws as an ArviZ object.

        Weights, and energies if they are known, are its sample statistics.

        Raises:
            ImportError: ArviZ is not installed.
        """
        statistics = {"weight": self.weights}
        if "energy" in self.info:
            statistics["energy"] = self.info["energy"]
        return diagnostics.to_arviz(self.by_name(), statistics)


def of_levels(
    arrays: list[Array], infos: list[dict[str, Any]], state: ChainState, *others: Any
) -> Draws:
    """Return the `Draws` of the coldest temperature, with those of all in `levels`.

    `arrays` has positions and energies, with the chains of each temperature after those
    of the colder ones, one in `infos` for each that was kept.
    """
    parts = zip(*(np.split(x, len(infos)) for x in arrays), strict=True)
    levels = []
    for (*leaves, energy), info in zip(parts, infos, strict=True):
        position = keras.tree.pack_sequence_as(state.structure, leaves)
        levels.append(Draws(position, None, {"energy": energy} | info, state, *others))
    if len(levels) > 1:
        levels[0].levels = tuple(levels)
    return levels[0]


def named_leaves(position: Any) -> dict[str, Any]:
    """Return the leaves of a structure by name.

    A name is the path of keys. The name of a single tensor is "position".
    """
    if not keras.tree.is_nested(position):
        return {"position": position}
    if isinstance(position, dict):
        return {
            (str(name) if leaf_name == "position" else f"{name}.{leaf_name}"): leaf
            for name, part in position.items()
            for leaf_name, leaf in named_leaves(part).items()
        }
    parts = {str(i): part for i, part in enumerate(position)}
    return {f"position.{k}": v for k, v in named_leaves(parts).items()}
