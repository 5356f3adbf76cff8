"""What `docs/performance.md` holds the figures against."""

BACKENDS = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}


def everywhere(bar):
    """The same bar for all backends."""
    return dict.fromkeys(BACKENDS, bar)


def by_backend(jax, others):
    """A bar for JAX, and one for the other two."""
    return {"jax": jax, "tensorflow": others, "torch": others}


# What, the file, its row, the figure, and what it may be at most.
BARS = [
    *(
        (f"{name} step / floor", "step_time_mlp", {"optimizer": key}, "ratio", bar)
        for name, key, bar in (
            ("SGLD", "SGLD", by_backend(1.10, 1.15)),
            ("CSGLD", "CSGLD, 200 bins", by_backend(1.10, 1.15)),
            ("SGHMC", "SGHMC", by_backend(1.15, 1.2)),
            ("CSGHMC", "CSGHMC, 200 bins", by_backend(1.15, 1.2)),
            ("RSGLD", "RSGLD", by_backend(1.25, 1.35)),
            ("SGHMC-SA, all kernels sparse,", "SGHMC-SA", everywhere(1.5)),
        )
    ),
    (
        "what SGLD adds to SGD, ours / blackjax's",
        "peers",
        {"library": "blackjax", "sampler": "SGLD"},
        "ours_over",
        {"jax": 1.0},
    ),
    (
        "what SGLD adds to SGD, ours / posteriors'",
        "peers",
        {"library": "posteriors", "sampler": "SGLD"},
        "ours_over",
        {"torch": 1.0},
    ),
    (
        "`mh.sample` with CSGLD, 1 chain, 1-d / blackjax's",
        "chains",
        {"kernel": "csgld", "chains": 1},
        "ratio",
        {"jax": 1.0},
    ),
    *(
        (
            f"30 chains of {what}, {sampler} / 30 single fits",
            "parallel_chains",
            {"model": model, "optimizer": sampler, "chains": 30},
            "ratio",
            everywhere(bar),
        )
        for model, what, bar in (
            ("large", "the perceptron", 1.05),
            ("small", "3,754 weights", 0.25),
        )
        for sampler in ("SGLD", "RSGLD")
    ),
    *(
        (
            f"extra memory of RSGLD / weights, {what}",
            "memory",
            {"model": "large", "optimizer": "RSGLD"},
            key,
            everywhere(2.1),
        )
        for what, key in (("slots", "slots"), ("peak", "peak"))
    ),
    ("seconds to import beyond Keras", "import_time", {}, "beyond_s", everywhere(0.2)),
]
