"""Several devices on one machine, for tests of JAX."""


def simulated_devices(count: int, flags: str = "") -> dict[str, str]:
    """The environment of a process with this many devices on the CPU.

    They wait for each other. On a busy machine this takes longer than XLA's 40 seconds,
    after which it ends the process. With as few threads as there are cores, two
    collective operations at once can leave a device without a thread: they then wait
    for ever.

    Args:
        count: of the devices.
        flags: other flags of XLA.
    """
    flags = (
        f"{flags} --xla_force_host_platform_device_count={count} "
        "--xla_cpu_collective_call_terminate_timeout_seconds=600"
    )
    return {"XLA_FLAGS": flags.strip(), "NPROC": "32"}
