"""Control variates of mini-batch gradients, around a fixed position.

Papers: Baker, Fearnhead, Fox and Nemeth (2019), "Control variates for stochastic
gradient MCMC"; Dubey, Reddi, Williamson, Poczos, Smola and Xing (2016),
"Variance reduction in stochastic gradient Langevin dynamics".

U_I(theta) = -(N/m sum_I log p(x_i|theta) + log prior) is the energy on a mini-batch I,
and U(theta) the energy on all of the data. The reference theta_0 is a fixed position.
A step uses

    g = grad U_I(theta) - grad U_I(theta_0) + grad U(theta_0),

    E = U_I(theta) - U_I(theta_0) + U(theta_0)
        + (grad U(theta_0) - grad U_I(theta_0)) . (theta - theta_0).

Both have the mean of plain mini-batches: grad U(theta) and U(theta). g is the gradient
of E. At the reference they are exact. Away from it, the noise of g is of the first
order in theta - theta_0, and the noise of E of the second order. The terms of the prior
cancel, except at theta.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Diffusion
from keras_mhmcmc.samplers.base import Kernel
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.sampling import faults
from keras_mhmcmc.sampling.log_density import Energies
from keras_mhmcmc.sampling.log_density import LogDensity
from keras_mhmcmc.sampling.starts import Start

tree = keras.tree

_LEAST_ROWS = 1024  # of the data, evaluated together at the reference


class ControlVariates:
    """The reference of a run, with the energy and the gradient of all data there."""

    def __init__(
        self,
        value: Any,
        kernel: Kernel,
        target: LogDensity,
        start: Start,
    ) -> None:
        if not isinstance(kernel, Diffusion):
            raise ValueError(
                "Argument `control_variates` must be None with a kernel that is no "
                "plain gradient sampler. Use `mh.kernels.sgld`, `psgld`, `sghmc` or "
                "`sgnht`. Received: `control_variates`, and "
                f"kernel={_validate.shown(kernel)}"
            )
        if not target.draws_batches:
            raise ValueError(
                "Argument `control_variates` must be None without mini-batches: with "
                "`log_density`, or all of the data in each step, it would have no "
                "effect. Give `log_likelihood`, `data` and a smaller `batch_size`. "
                f"Received: `control_variates` and batch_size={target.batch_size} with "
                f"{target.train_size} examples"
            )
        structure, shapes = start.structure, start.shapes
        reference = start.one_position(value, "control_variates")
        # A step of all chains evaluates as many rows, so there is memory for them.
        rows = max(_LEAST_ROWS, shapes[0][0] * target.batch_size)
        energy, gradient = _at_reference(target, structure, reference, rows)
        if not np.isfinite(energy) or not all(np.isfinite(g).all() for g in gradient):
            raise ValueError(
                "Argument `control_variates` must be where the log density and its "
                f"gradient are finite. {faults.count_of_nonfinite(target)}Received: "
                f"control_variates={_validate.shown(value)}, with the log density "
                f"{-energy}"
            )
        self._train_size = target.train_size
        # What each step reads: the reference, U(theta_0), and the gradient of U/N.
        self.constants: list[Tensor] = [
            ops.convert_to_tensor(np.asarray(array, "float32"))
            for array in (*reference, energy, *gradient)
        ]

    def corrected(self, constants: list[Tensor], evaluate: Energies) -> Energies:
        """Return `evaluate`, of `LogDensity.energies`, with control variates."""
        count = len(constants) // 2
        reference, full_energy = constants[:count], constants[count]
        full_gradient = constants[count + 1 :]

        def energies(position: Position, indices: list[Tensor]) -> tuple[Any, ...]:
            start = [
                ops.broadcast_to(x, ops.shape(p))
                for x, p in zip(reference, position, strict=True)
            ]
            return estimate(
                evaluate(position, indices),
                evaluate(start, indices),
                (full_energy, full_gradient),
                tensors.subtract(position, start),
                self._train_size,
            )

        return energies


def estimate(
    at_position: tuple[Any, ...],
    at_reference: tuple[Any, ...],
    of_all: tuple[Any, ...],
    change: Position,
    train_size: int,
) -> tuple[Tensor, Position]:
    """Return E in nats, (K,), and the gradient g / N."""
    (energy, gradient), (start, start_gradient), (full, full_gradient) = (
        at_position,
        at_reference,
        of_all,
    )
    error = tensors.subtract(full_gradient, start_gradient)
    slope = train_size * tensors.dot(error, change, like=energy)
    # In this order the differences vanish at the reference, to the last bit.
    differences = tensors.subtract(gradient, start_gradient)
    return (energy - start) + (full + slope), [
        difference + g for difference, g in zip(differences, full_gradient, strict=True)
    ]


def _at_reference(
    target: LogDensity, structure: Any, reference: list[Array], rows: int
) -> tuple[float, list[Array]]:
    """Return U and the gradient of U/N on all of the data, summed in float64."""

    def of_rows(position: Position, rows: list[Tensor]) -> tuple[Any, ...]:
        return target.energies(structure, rows, True)(position, [])

    evaluate = _backend.compile_function(of_rows)
    position = [ops.convert_to_tensor(array[None]) for array in reference]
    energy, gradient = 0.0, [np.zeros(array.shape) for array in reference]
    for begin in range(0, target.train_size, rows):
        block = [array[begin : begin + rows] for array in target.constants]
        share = len(block[0]) / target.train_size
        part, slopes = evaluate(position, block)
        # The energy of a block is that of all the data, estimated from its mean.
        energy += share * float(ops.convert_to_numpy(part)[0])
        for total, slope in zip(gradient, slopes, strict=True):
            total += share * ops.convert_to_numpy(slope)[0]
    return energy, gradient
