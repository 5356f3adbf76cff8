"""Makes `docs/performance.md` from the JSON files of the benchmarks.

    python docs/tools/performance.py

The files are `docs/tools/performance/BACKEND_NAME.json`. `examples/benchmarks/all.py`
writes them. The section on accelerators comes from the files of
`docs/tools/accelerator_rows.py`. After a new measurement run this program again.
"""

import json
import pathlib

import accelerator_rows
from performance_bars import BACKENDS
from performance_bars import BARS
from performance_tables import NOT_MEASURED
from performance_tables import figure
from performance_tables import find
from performance_tables import growth
from performance_tables import pivot
from performance_tables import table

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "performance"
PAGE = HERE.parent / "performance.md"
MODELS = {
    "mlp": "Perceptron 784-600-10, batches of 100",
    "resnet20": "ResNet20 on 32x32x3, batches of 128",
    "large": "Perceptron 784-4620-4620-10, batches of 100",
    "tiny": "Perceptron 20-8-10, batches of 100: to try the tools",
}


def load(folder=FOLDER):
    """The files' contents by backend and name."""
    results = {}
    for path in sorted(folder.glob("*.json")):
        backend, name = path.stem.split("_", 1)
        results[backend, name] = json.loads(path.read_text(encoding="utf-8"))
    if not results:
        raise FileNotFoundError(
            f"{folder} must hold the benchmarks' JSON files. Write them with "
            "examples/benchmarks/all.py."
        )
    return results


def bars(results):
    """The table of the bars. A short run does not count as a measurement."""
    long = {key: value for key, value in results.items() if not value["quick"]}
    lines = []
    for what, name, wanted, key, limits in BARS:
        line = [what]
        for backend in BACKENDS:
            value = find(long, backend, name, wanted).get(key)
            limit = limits.get(backend)
            if limit is None:
                line.append("")
            elif value is None:
                line.append(f"not measured (at most {figure(limit)})")
            else:
                text = f"{figure(value)} (at most {figure(limit)})"
                line.append(text if value <= limit else f"**{text}: missed**")
        lines.append(line)
    return table(["", *BACKENDS.values()], lines)


def step_times(results):
    """A table for each model."""
    lines = []
    for model, title in MODELS.items():
        chosen = {
            (backend, name): content
            | {"rows": [row for row in content["rows"] if row["model"] == model]}
            for (backend, name), content in results.items()
            if name.startswith("step_time")
        }
        merged = {}
        for (backend, _), content in chosen.items():
            if content["rows"]:
                merged.setdefault((backend, "step_time"), content)
        if not merged:
            continue
        weights = next(iter(merged.values()))["rows"][0]["weights"]
        lines += [f"### {title}", "", f"{weights:,} weights.", ""]
        lines += pivot(
            merged,
            "step_time",
            {"optimizer": "optimizer"},
            {"ms": "ms", "ratio": "/ floor"},
        )
        for (backend, _), content in merged.items():
            floor = content["rows"][-1]
            lines.append(
                f"- {BACKENDS[backend]}: the normals take "
                f"{figure(floor['draw_ms'])} ms of the floor. "
                f"The generator is `{floor['generator']}`."
            )
        lines.append("")
    return lines or ["Not measured.", ""]


def provenance(results):
    """Machines, versions, and the commands of short runs."""
    machines, lines = {}, []
    for (backend, _), content in results.items():
        machine = content["machine"]
        text = (
            f"{machine['processor']}, {machine['cores']} cores, "
            f"{machine['memory_gb']} GB, {machine['system']}"
        )
        if machine["accelerator"]:
            text += f", {machine['accelerator']}"
        if "OMP_NUM_THREADS" in machine:
            text += f", OMP_NUM_THREADS={machine['OMP_NUM_THREADS']}"
        versions = ", ".join(
            f"{name} {version}" for name, version in content["versions"].items()
        )
        machines.setdefault((text, versions), set()).add(BACKENDS[backend])
    for (text, versions), backends in machines.items():
        lines.append(f"- {', '.join(sorted(backends))}: {text}; {versions}.")
    lines.append("")
    short = [content for content in results.values() if content["quick"]]
    if not short:
        return lines
    rows = [
        [f"`{content['command']}`", f"{content['rounds']}, short run", content["date"]]
        for content in short
    ]
    return lines + table(["command", "rounds", "date"], rows)


def page(results):
    """The page's text."""
    dates = sorted({content["date"] for content in results.values()})
    rounds = sorted({content["rounds"] for content in results.values()})
    dates, rounds = (
        str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"
        for values in (dates, rounds)
    )
    lines = [
        "<!-- Made by docs/tools/performance.py from JSON: do not edit. -->",
        "# Performance",
        "",
        "What does a step of a sampler cost you, compared with a step of SGD? On two",
        f"cores of a CPU, measured {dates}, medians of {rounds} alternating rounds.",
        "The end of the page lists [machine, versions and",
        "commands](#how-it-was-measured).",
        "",
    ]
    if any(content["quick"] for content in results.values()):
        lines += [
            '!!! warning "Short runs"',
            "    Some of the tables come from short runs on a busy machine. The end of",
            "    the page marks them. They only show that the programs work.",
            "",
        ]
    lines += [
        *in_short(results),
        "## Time of a step",
        "",
        *step_times(results),
        "## Beside other libraries",
        "",
        "The tables show how many milliseconds a sampler adds to a step of SGD in",
        "the library's own training loop. This package runs in Keras' `fit`,",
        "blackjax in steps jitted one by one, posteriors and torch-sgld in a loop",
        "over the batches. The network is the perceptron 784-600-10.",
        "",
    ]
    names = {"library": "library", "sampler": "sampler"}
    figures = {"plain_ms": "SGD ms", "ms": "ms", "added_ms": "added"}
    for backend, title in BACKENDS.items():
        if (backend, "peers") in results:
            only = {(backend, "peers"): results[backend, "peers"]}
            lines += [f"{title}:", ""]
            lines += pivot(only, "peers", names, figures | {"ours_over": "ours/theirs"})
    kernels = {"kernel": "kernel", "chains": "chains"}
    lines += [
        "The next table shows `mh.sample` on a mixture of two normals in one",
        "dimension, in microseconds a step:",
        "",
        *pivot(results, "chains", kernels, {"ours_us": "time"}),
    ]
    if (found := ("jax", "chains")) in results:
        figures = {"ours_us": "ours", "blackjax_us": "blackjax's", "ratio": "ratio"}
        figures |= {"same_us": "blackjax's, same results"}
        figures |= {"same_ratio": "ratio, same results"}
        lines += [
            "On JAX it runs by turns with blackjax's kernels in `lax.scan`.",
            "`mh.sample` also returns the energy of each draw, and with CSGLD the",
            'number of draws in each subregion. The columns "same results" are for',
            "blackjax's kernels with these results:",
            "",
            *pivot({found: results[found]}, "chains", kernels, figures),
        ]
    lines += [
        "## Chains and ensembles",
        "",
        "The table compares a step of the chains of one `mh.ParallelChains` with a",
        "step of as many single fits, in milliseconds. `large` is the perceptron",
        "784-600-10, `small` has 3,754 weights.",
        "",
        *pivot(
            results,
            "parallel_chains",
            {"model": "model", "optimizer": "optimizer", "chains": "chains"},
            {"chains_ms": "chains", "single_ms": "single", "ratio": "ratio"},
        ),
        "The next table compares the predictions of an `mh.Ensemble` for 10,000",
        "images with those of its members, one after the other, in seconds:",
        "",
        *pivot(
            results,
            "ensemble",
            {"members": "members"},
            {"ensemble_s": "ensemble", "single_s": "single", "ratio": "ratio"},
        ),
        "## Memory",
        "",
        "The table shows the memory of the slots, and the peak of a training step",
        "minus the peak of SGD, in units of the weights. On JAX the peak is the",
        "memory that XLA plans for the compiled step. On the other backends it is",
        "the resident memory of a process.",
        "",
        *pivot(
            results,
            "memory",
            {"optimizer": "optimizer"},
            {"slots": "slots", "peak": "peak"},
        ),
        *accelerator_rows.performance_lines(accelerator_rows.load()),
        "## How the cost grows",
        "",
        "The exponent describes the growth since the previous row of the same",
        "optimizer: 1 is linear growth, 0 is no growth. This table shows a layer of",
        "d numbers:",
        "",
        *growth(results, "weights"),
        "This table compares steps early and late in a run that keeps a sample",
        "every ten steps, in milliseconds:",
        "",
        *pivot(
            results,
            "scaling",
            {"samples": "samples go", "kept": "kept"},
            {"first_ms": "first quarter", "last_ms": "last", "ratio": "ratio"},
        ),
        "## Import",
        "",
        "The table shows the seconds to import Keras with its backend, and then",
        "keras_mhmcmc.",
        "",
        *table(
            ["backend", "Keras", "keras_mhmcmc"],
            [
                [
                    BACKENDS[backend],
                    figure(row.get("keras_s")),
                    figure(row.get("beyond_s")),
                ]
                for backend in BACKENDS
                for row in [find(results, backend, "import_time", {})]
            ],
        ),
        "## Goals",
        "",
        "The floor is the time of a step of Keras' SGD in the same `fit`, plus the",
        "time to draw one standard normal number for each weight. This table leaves",
        "out short runs.",
        "",
        *bars(results),
        "These are the reasons for the missed goals:",
        "",
        "- PyTorch runs a step operation by operation. Each operation reads memory",
        "  that the cache no longer holds. Operations on single numbers add to the",
        "  time.",
        "- TensorFlow's XLA computes normals twice if two results need them, such as a",
        "  velocity and a position.",
        "- A proposal can be decided only when the gradients of all layers are",
        "  known. SGD frees the gradient of each layer as soon as it is added. The",
        "  peak memory of Adam, [below](#memory), is about as high, or higher.",
        "",
        "## How it was measured",
        "",
        "The compared programs take turns. Every other round reverses the order. A",
        "ratio is the median of the ratios within the rounds. Times leave out",
        "compilation. These commands measure everything again on a backend:",
        "",
        "```bash",
        "python examples/benchmarks/all.py --backend jax --out docs/tools/performance",
        "python docs/tools/performance.py",
        "```",
        "",
        *provenance(results),
    ]
    return "\n".join(lines).rstrip() + "\n"


IN_SHORT = (
    "SGD",
    "Adam",
    "SGLD",
    "PSGLD",
    "SGHMC",
    "CSGHMC, 200 bins",
    "RSGLD",
    "MINT",
    "SGHMC-SA",
)


def in_short(results):
    """The user's answer: milliseconds, and how many steps of SGD they are."""
    present = [backend for backend in BACKENDS if (backend, "step_time_mlp") in results]
    rows = []
    for optimizer in IN_SHORT:
        cells = [optimizer]
        for backend in present:
            wanted = {"model": "mlp", "optimizer": optimizer}
            of_sgd = wanted | {"optimizer": "SGD"}
            ms, sgd = (
                find(results, backend, "step_time_mlp", row).get("ms")
                for row in (wanted, of_sgd)
            )
            cells.append(
                NOT_MEASURED
                if ms is None or sgd is None
                else f"{figure(ms)} ms, {figure(ms / sgd, 1)} × SGD"
            )
        if any(cell != NOT_MEASURED for cell in cells[1:]):
            rows.append(cells)
    return [
        "## What a step costs",
        "",
        "The perceptron is the hard case: its gradient is cheap, and the noise is not.",
        "In a convolutional network [the gradient takes nearly all of the",
        "time](#resnet20-on-32x32x3-batches-of-128).",
        "",
        f"{MODELS['mlp']}:",
        "",
        *table(["optimizer", *(BACKENDS[key] for key in present)], rows),
    ]


if __name__ == "__main__":
    PAGE.write_text(page(load()), encoding="utf-8")
