"""Several devices on one machine, for tests of JAX."""


def simulated_devices(count: int) -> str:
    """XLA's flags for this many devices on the CPU.

    They wait for each other. On a busy machine this takes longer than XLA's 40 seconds,
    after which it ends the process.
    """
    return (
        f"--xla_force_host_platform_device_count={count} "
        "--xla_cpu_collective_call_terminate_timeout_seconds=600"
    )
