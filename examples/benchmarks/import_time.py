"""The time to import keras_mhmcmc, without the time to import Keras.

New processes take turns: one imports Keras alone, the other Keras and then
keras_mhmcmc. The program prints the medians of the whole imports. It also prints the
time of the second process for keras_mhmcmc alone, which is less noisy than the
difference of the whole imports.

    KERAS_BACKEND=torch python examples/benchmarks/import_time.py
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import statistics

import measuring

CODE = """
import time
began = time.perf_counter()
import keras
there = time.perf_counter()
{second}
print(time.perf_counter() - began, time.perf_counter() - there)
"""


def import_in_fresh_process(second):
    """Seconds of both imports, and of the second alone."""
    output = measuring.fresh_process("-c", CODE.format(second=second))
    return [float(word) for word in output.split()]


def main(arguments=None):
    """Measures, prints the table, and returns its only row."""
    parser = measuring.parser(__doc__, rounds=9)
    parsed = measuring.parse(parser, arguments)
    if parsed.quick:
        parsed.rounds = 1
    import_in_fresh_process("import keras_mhmcmc")  # writes the byte code
    figures = measuring.alternate(
        {
            "keras": lambda: import_in_fresh_process(""),
            "both": lambda: import_in_fresh_process("import keras_mhmcmc"),
        },
        parsed.rounds,
    )
    beyond = [after for _, after in figures["both"]]
    row = {
        "keras_s": statistics.median(whole for whole, _ in figures["keras"]),
        "both_s": statistics.median(whole for whole, _ in figures["both"]),
        "beyond_s": statistics.median(beyond),
        "quartiles": measuring.quartiles(beyond),
    }
    measuring.print_table(
        f"seconds of an import, medians of {parsed.rounds} processes",
        {
            "keras_s": "keras",
            "both_s": "keras and keras_mhmcmc",
            "beyond_s": "keras_mhmcmc",
            "quartiles": "quartiles",
        },
        [row],
    )
    measuring.report(__file__, parsed, [row])
    return [row]


if __name__ == "__main__":
    main()
