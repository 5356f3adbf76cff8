"""The time that SGLD adds to a step of SGD, here and in other libraries.

The network is a perceptron 784-600-10 (477,010 weights), with batches of 100. Each
library runs in its own process and its own training loop: ours in Keras' `fit`,
blackjax in steps jitted one by one, posteriors and torch-sgld in a loop over batches.
The program compares the time of a step of SGLD minus the time of a step of plain SGD in
the same loop, so that a fast or slow loop does not count. It also prints both medians.
The processes take turns, and the others wait.

    KERAS_BACKEND=jax python examples/benchmarks/peers.py
    pip install posteriors torch-sgld      # blackjax is in the `dev` extra
    KERAS_BACKEND=torch python examples/benchmarks/peers.py

The program leaves out libraries that are not installed, and names them.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import json
import pathlib
import statistics
import subprocess
import sys

import measuring

LIBRARIES = {
    "jax": ("ours", "blackjax"),
    "tensorflow": ("ours",),  # no library with an SGLD for Keras 3 or TensorFlow 2.21
    "torch": ("ours", "posteriors", "torch-sgld"),
}


class Library:
    """A process that runs the loops of a library when it is told to."""

    def __init__(self, name, steps):
        script = pathlib.Path(__file__).with_name("peer_loops.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), name, str(steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.missing = self._answer().get("missing")

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                "A benchmark process ended early. Its own message stands above."
            )
        return json.loads(line)

    def run(self):
        """Milliseconds of a step by loop, of one round."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self):
        """Ends the process."""
        self._process.communicate()


def measure(names, steps, rounds):
    """Rows, a line for each library and sampler."""
    libraries = {}
    for name in names:
        library = Library(name, steps)
        if library.missing:
            print(f"{name} is left out: the module {library.missing} is not installed")
            library.close()
        else:
            libraries[name] = library
    figures = measuring.alternate(
        {name: library.run for name, library in libraries.items()}, rounds
    )
    for library in libraries.values():
        library.close()
    rows = []
    for name, turns in figures.items():
        plain = [turn["SGD"] for turn in turns]
        for sampler in [key for key in turns[0] if key != "SGD"]:
            times = [turn[sampler] for turn in turns]
            added = [a - b for a, b in zip(times, plain, strict=True)]
            rows.append(
                {
                    "library": name,
                    "sampler": sampler,
                    "plain_ms": statistics.median(plain),
                    "ms": statistics.median(times),
                    "added_ms": statistics.median(added),
                    "quartiles": measuring.quartiles(added),
                }
            )
    return with_ratios(rows)


def with_ratios(rows):
    """The rows, those of others with what ours adds over what theirs adds."""
    ours = {row["sampler"]: row for row in rows if row["library"] == "ours"}
    for row in rows:
        own = ours.get(row["sampler"], row)
        if own is not row and row["added_ms"] > 0:
            row["ours_over"] = own["added_ms"] / row["added_ms"]
    return rows


def main(arguments=None):
    """Measures, prints the table, and returns its rows."""
    parser = measuring.parser(__doc__, rounds=15)
    parser.add_argument("--steps", type=int, default=100, help="steps in a round")
    every = sorted({name for names in LIBRARIES.values() for name in names})
    parser.add_argument("--libraries", choices=every, nargs="+")
    parsed = measuring.parse(parser, arguments)
    if parsed.quick:
        parsed.rounds, parsed.steps = 2, 5
    names = parsed.libraries or LIBRARIES[measuring.backend()]
    rows = measure(names, parsed.steps, parsed.rounds)
    measuring.print_table(
        f"a step of a perceptron 784-600-10, medians of {parsed.rounds} rounds",
        {
            "library": "library",
            "sampler": "sampler",
            "plain_ms": "SGD ms",
            "ms": "sampler ms",
            "added_ms": "added ms",
            "quartiles": "quartiles",
            "ours_over": "ours/theirs",
        },
        rows,
    )
    packages = ("blackjax", "posteriors", "torch-sgld")
    measuring.report(__file__, parsed, rows, packages)
    return rows


if __name__ == "__main__":
    main()
