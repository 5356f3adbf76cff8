"""PyTorch: one chain that all processes of a group move.

`DistributedDataParallel` averages the gradients over the processes, but not the loss.
Every process makes the whole update, with the same noise.
"""

import contextlib
import contextvars

import torch
import torch.distributed as group

__all__ = [
    "check_processes",
    "count_processes",
    "independent_processes",
    "over_replicas",
    "refuse_replicas",
    "shares_chains",
]


_INDEPENDENT = contextvars.ContextVar("independent_processes", default=False)
_REMEDY = (
    "or, for a chain of its own in each process, make the sampler in "
    "`with mh.independent_processes():`."
)


def refuse_replicas(name):
    """Raise a `ValueError` if there are several processes, unless independent."""
    count = count_processes()
    if count > 1 and shares_chains():
        raise ValueError(
            f"`{name}` runs in one process. For chains of their own in each "
            "process, make and compile it in `with mh.independent_processes():`, with "
            "another seed in each process. "
            f"Received: a process group of {count} processes."
        )


@contextlib.contextmanager
def independent_processes():
    token = _INDEPENDENT.set(True)
    try:
        yield
    finally:
        _INDEPENDENT.reset(token)


def shares_chains():
    return not _INDEPENDENT.get()


def count_processes():
    if not group.is_available() or not group.is_initialized():
        return 1
    return group.get_world_size()


def check_processes(gradients, variables, seeds):
    count = count_processes()
    if count == 1:
        return
    if seeds is not None:
        first = seeds.value.detach().clone()
        group.broadcast(first, src=0)
        seeds.assign(first)
    if any(_differ(gradients)):
        raise ValueError(
            "The processes of a group must have the same gradients, those of the whole "
            "batch. Call the model by way of "
            "`torch.nn.parallel.DistributedDataParallel(model)` in a custom training "
            f"loop, {_REMEDY} Received: gradients that differ between {count} "
            "processes."
        )
    differ = _differ([variable.value for variable in variables])
    others = [v.path for v, is_other in zip(variables, differ, strict=True) if is_other]
    if others:
        raise ValueError(
            "The processes of a group must start with the same weights, and with a "
            "sampler of the same seed and state. Give all of them the same `seed`, or "
            f"load the same file in all, {_REMEDY} Received: values that differ "
            f"between {count} processes, in {', '.join(others)}."
        )


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _differ(tensors):
    """Return whether the bits of each tensor differ between the processes."""
    with torch.no_grad():
        bits = [x.detach().view(_INTEGERS[x.element_size()]) for x in tensors]
        sums = torch.stack([x.sum(dtype=torch.int64) for x in bits])
        extremes = torch.stack([sums, -sums])
        group.all_reduce(extremes, op=group.ReduceOp.MAX)
        return (extremes[0] != -extremes[1]).tolist()


def over_replicas(gradients, loss, changes):
    """Return the gradients, averaged already, and the loss of all processes."""
    count = count_processes()
    if count == 1 or loss is None:
        return gradients, loss
    with torch.no_grad():
        dtype = torch.promote_types(loss.dtype, torch.float32)
        numbers = torch.full_like(loss, changes, dtype=dtype)
        sums = torch.stack([loss.to(dtype), numbers])
        group.all_reduce(sums)
    # A process without changes does not wait for the device.
    if changes and int(sums[1]) != count * changes:
        raise ValueError(
            "`settle`, `propose` and `mh.PosteriorSamples` change the state of a "
            "sampler: use them in all processes of a group, at the same step. "
            f"Received: {changes} such calls since the last step in this process, and "
            f"{int(sums[1])} in all {count} processes."
        )
    return gradients, sums[0] / count
