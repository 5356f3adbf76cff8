"""Puts what was measured on an accelerator into the pages.

    python docs/tools/accelerator_rows.py

The files are `docs/tools/accelerator/BACKEND_STAGE.json`. `examples/accelerator.py`
writes them. Where a file is missing, or comes from a short run or from a CPU, the pages
say "not measured". `docs/tools/performance.py` writes the section of its page.
"""

import json
import pathlib
import re
import statistics

from performance_bars import BACKENDS

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "accelerator"
PAGE = HERE.parent / "reproduction.md"
MARKS = "<!-- accelerator: start -->", "<!-- accelerator: end -->"
NOT_MEASURED = "not measured"
SEEN = """\
A run is two epochs of 20 steps of a sampler, in float32 or in bfloat16. `MHBT` and
`MINT` accept no plain Langevin proposal in this network, on a CPU as well, and the
package warns of it. On PyTorch three chains of `RSGLD` without a warm-up did not move
in 20 steps either, and did not on a CPU. Python takes longer to start a step of this
perceptron than the GPU to make it. So 30 chains cost hardly more than one, and a step
of 25 million weights hardly more than one of half a million. On PyTorch the sampler's
own operations are launched one by one: `RSGLD` takes three times as long as `SGD`
there. A step of `CSGLD` reads six numbers more from the device than one of `SGD`. The
reads, the memory, the predictions, ResNet20 and all times of PyTorch were measured on
the H200, the other figures on the H100.

About 40% of the fast tests of samplers, collections, ensembles, chains and attacks
ran there too, with JAX 0.11 and PyTorch 2.11, in three minutes each. None found a
wrong result of the package. Some tests failed because they expect the random numbers
or the rounding of a CPU, or read arrays of a CPU.""".splitlines()
COMMAND = "KERAS_BACKEND=jax python examples/accelerator.py --data-dir folder"
SAMPLERS = ("SGLD", "SGHMC", "CSGLD, 200 bins", "RSGLD", "SGHMC-SA")
NETWORKS = {
    "mlp": "perceptron 784-600-10",
    "resnet20": "ResNet20",
    "large": "25 million weights",
}
# Stages whose programs write no machine: that of `smoke` counts.
PLAIN = ("table1", "cifar_resnet", "cifar_cnn")


def load(folder=FOLDER):
    """Contents of the files by backend and stage. Only runs on an accelerator count."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        backend, stage = path.stem.split("_", 1)
        found[backend, stage] = json.loads(path.read_text(encoding="utf-8"))
    return {key: content for key, content in found.items() if counts(found, key)}


def counts(found, key):
    """Whether a file is a measurement: a full run on an accelerator."""
    backend, stage = key
    about = found.get((backend, "smoke"), {}) if stage in PLAIN else found[key]
    is_on_device = about.get("machine", {}).get("accelerator") is not None
    return is_on_device and not about["quick"]


def rows_of(results, backend, stage):
    """The rows of a stage, or none."""
    content = results.get((backend, stage), [])
    return content if isinstance(content, list) else content["rows"]


def find(results, backend, stage, **wanted):
    """The first row with these values, or an empty one."""
    for row in rows_of(results, backend, stage):
        if all(row.get(key) == value for key, value in wanted.items()):
            return row
    return {}


def cell(value, form="{:.2f}"):
    """A figure, or that there is none."""
    return NOT_MEASURED if value is None else form.format(value)


def table(headers, lines):
    """Lines of a Markdown table."""
    cells = [headers, ["---"] * len(headers), *lines]
    return ["| " + " | ".join(line) + " |" for line in cells] + [""]


def line(what, figure):
    """A line of a table: what it is, and a figure of each backend."""
    return [what, *(figure(backend) for backend in BACKENDS)]


def smoke(results, backend, key):
    """How many runs of all samplers a statement holds for."""
    rows = rows_of(results, backend, "smoke")
    if not rows:
        return NOT_MEASURED
    return f"{sum(row[key] for row in rows)} of {len(rows)}"


def resumed(results, backend):
    """How many of the runs that went on from a file did so bit for bit."""
    rows = rows_of(results, backend, "smoke")
    found = [row["resumed_difference"] for row in rows if "resumed_difference" in row]
    return f"{found.count(0.0)} of {len(found)}" if found else NOT_MEASURED


def milliseconds(results, backend, stage):
    """The step of SGD, and the slowest of the samplers."""
    sgd = find(results, backend, stage, optimizer="SGD").get("ms")
    if sgd is None:
        return NOT_MEASURED
    return f"{sgd:.2f}; {slowest(results, backend, stage, SAMPLERS, 'ms')}"


def reads(results, backend):
    """The most reads that a sampler adds to a step of SGD."""
    rows = rows_of(results, backend, "host_reads")
    added = [row["added"] for row in rows if row.get("added") is not None]
    return cell(max(added, default=None))


def slowest(results, backend, stage, names, key, form="{:.2f}"):
    """The largest figure of several samplers, with its name."""
    found = [(find(results, backend, stage, optimizer=n).get(key), n) for n in names]
    found = [(value, name) for value, name in found if value is not None]
    return f"{form.format(max(found)[0])} ({max(found)[1]})" if found else NOT_MEASURED


def step_details(results):
    """The time of each sampler's step, where there are any."""
    lines = []
    for name, network in NETWORKS.items():
        for sampler in SAMPLERS:
            figures = [
                find(results, backend, f"step_time_{name}", optimizer=sampler)
                for backend in BACKENDS
            ]
            if any(figures):
                cells = [cell(row.get("ms")) for row in figures]
                lines.append([f"{sampler}, {network}", *cells])
    return table(["ms a step", *BACKENDS.values()], lines) if lines else []


def performance_lines(results):
    """The section of docs/performance.md."""
    lines = [
        line(
            "runs of all samplers that stay finite",
            lambda b: smoke(results, b, "is_finite"),
        ),
        line(
            "runs of all samplers that accept a move",
            lambda b: smoke(results, b, "has_moved"),
        ),
        line(
            "runs from a saved file that are equal bit for bit",
            lambda b: resumed(results, b),
        ),
    ]
    lines.append(
        line("reads from the device that a sampler adds", lambda b: reads(results, b))
    )
    for name, network in NETWORKS.items():
        lines.append(
            line(
                f"ms a step, {network}: SGD; slowest of {len(SAMPLERS)} samplers",
                lambda b, n=name: milliseconds(results, b, f"step_time_{n}"),
            )
        )
    for stage, network in (
        ("parallel_chains", NETWORKS["mlp"]),
        ("parallel_chains_resnet20", NETWORKS["resnet20"]),
    ):
        lines.append(
            line(
                f"30 chains / one chain, {network}, slower of SGLD and RSGLD (goal 3)",
                lambda b, g=stage: slowest(
                    results, b, g, ("SGLD", "RSGLD"), "times_one", "{:.1f}"
                ),
            )
        )
    lines.append(
        line(
            "extra memory of RSGLD / weights, peak",
            lambda b: cell(find(results, b, "memory", optimizer="RSGLD").get("peak")),
        )
    )
    lines.append(
        line(
            "seconds for 10,000 predictions of 30 members",
            lambda b: cell(find(results, b, "ensemble", members=30).get("ensemble_s")),
        )
    )
    lines.append(
        line(
            "images a second under PGD, 20 steps, 30 members",
            lambda b: cell(
                find(results, b, "attack_speed", members=30).get("images_per_s"),
                "{:,.0f}",
            ),
        )
    )
    return [
        "## On an accelerator",
        "",
        *told(results),
        *table(["", *BACKENDS.values()], lines),
        *step_details(results),
        *generators(results),
    ]


def told(results):
    """A sentence on the machine, or that there was none."""
    devices = {
        content["machine"]["accelerator"]
        for content in results.values()
        if "machine" in content
    }
    if not devices:
        return [
            "No GPU or TPU was used yet: everything ran on CPUs. This command fills",
            "the table:",
            "",
            f"```bash\n{COMMAND}\npython docs/tools/accelerator_rows.py\n```",
            "",
        ]
    return [
        f"Measured on {', '.join(sorted(devices))} by `{COMMAND}`.",
        *SEEN,
        "",
    ]


def generators(results):
    """How long each generator draws a normal number for each weight."""
    lines = []
    for backend, title in BACKENDS.items():
        floor = find(results, backend, "step_time_mlp", optimizer="floor")
        for name, ms in floor.get("generators_ms", {}).items():
            lines.append(f"- {title}: `{name}` draws 477,010 normals in {ms:g} ms.")
    return [*lines, ""] if lines else []


def reproduction_lines(results):
    """The part of docs/reproduction.md: tables 1 and 2, and the residual network."""
    lines = []
    for backend, title in BACKENDS.items():
        for row in rows_of(results, backend, "table1"):
            lines.append(
                [
                    f"MHBT table 1, {row['method']} at {row['rate']:g}, "
                    f"{row['epochs']} epochs, {row['chains']} chains",
                    title,
                    f"{statistics.median(row['errors'][-1]):.2f}% test error (median)",
                ]
            )
        for row in rows_of(results, backend, "cifar_cnn"):
            lines.append(
                [
                    f"MHBT table 2, {row['method']} at {row['rate']:g}",
                    title,
                    f"{statistics.median(row['errors']):.2f}% test error (median)",
                ]
            )
        for row in rows_of(results, backend, "cifar_resnet"):
            lines.append(
                [
                    f"CSGLD table 2, {row['method']}, 20 epochs",
                    title,
                    f"{row['bma']:.2f}% accuracy of the average",
                ]
            )
    known = {name.split(",")[0] for name, _, _ in lines}
    for name in ("MHBT table 2", "CSGLD table 2"):
        if name not in known:
            lines.append([name, "", NOT_MEASURED])
    return table(["on an accelerator", "backend", "result"], lines)


def fill(text, results):
    """The page with the part between the marks made anew."""
    start, end = MARKS
    made = "\n".join([start, "", *reproduction_lines(results), end])
    return re.sub(f"{start}.*{end}", lambda _: made, text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), load()), encoding="utf-8")
