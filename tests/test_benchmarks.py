"""The benchmarks run, and their page says what their files say."""

import copy
import json
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.support.example_tools import EXAMPLES
from tests.support.example_tools import load

DOCS = Path(__file__).parents[1] / "docs"


def benchmark(name):
    """The module of a script in examples/benchmarks."""
    folder = str(EXAMPLES / "benchmarks")
    if folder not in sys.path:
        sys.path.append(folder)  # as Python does for a script
    return load(f"benchmarks/{name}")


@pytest.fixture(scope="module")
def performance():
    """The module docs/tools/performance.py."""
    sys.path.append(str(DOCS / "tools"))
    yield load("../docs/tools/performance")
    sys.path.remove(str(DOCS / "tools"))


@pytest.fixture(autouse=True)
def backend_in_the_environment(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", keras.backend.backend())


def test_step_time_prints_a_table_and_writes_it(tmp_path, capsys):
    path = tmp_path / "results.json"
    arguments = ["--quick", "--only", "SGLD", "--json", str(path)]
    rows = benchmark("step_time").main(arguments)
    assert [row["optimizer"] for row in rows] == ["SGD", "SGLD", "floor"]
    sgd, _, floor = rows
    assert floor["ratio"] == 1.0 and floor["draw_ms"] > 0.0
    assert 0.0 < sgd["ms"] < floor["ms"] and sgd["ratio"] < 1.0
    for row in rows:
        assert row["quartiles"][0] <= row["ratio"] <= row["quartiles"][1]
    assert "tiny, 258 weights" in capsys.readouterr().out
    written = json.loads(path.read_text())
    assert written["backend"] == keras.backend.backend()
    assert written["quick"] and written["rounds"] == 2
    assert written["command"].endswith("step_time.py --quick --only SGLD")
    assert str(tmp_path) not in path.read_text()
    assert written["versions"]["keras"] == keras.__version__
    assert written["rows"][1]["ms"] == pytest.approx(rows[1]["ms"], rel=1e-3)


def test_tasks_take_turns_in_both_orders():
    called = []
    tasks = {
        name: lambda name=name: called.append(name) or len(called) for name in "ab"
    }
    figures = benchmark("measuring").alternate(tasks, rounds=3)
    assert "".join(called) == "abbaab"
    assert figures == {"a": [1, 4, 5], "b": [2, 3, 6]}


def test_ratios_are_taken_within_rounds():
    measuring = benchmark("measuring")
    # The machine was twice as slow in the second round.
    assert measuring.ratios([1.1, 2.2, 1.2], [1.0, 2.0, 1.0]) == [1.1, 1.1, 1.2]
    assert measuring.quartiles([3.0]) == [3.0, 3.0]
    assert measuring.quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == [2.0, 4.0]


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "-"),
        (12_345, "12,345"),
        (1234.5, "1,234"),
        (12.345, "12.3"),
        (1.234, "1.23"),
        (0.01234, "0.012"),
        ([1.0, 2.0], "1.00 to 2.00"),
        ("disk", "disk"),
    ],
)
def test_cells_have_the_digits_that_count(value, text):
    assert benchmark("measuring").as_text(value) == text


def test_growth_has_the_exponent_of_a_power():
    scaling = benchmark("scaling")
    rows = [
        {"optimizer": "SGD", "d": 10**k, "ms": 10.0 ** (1.5 * k)} for k in (1, 2, 3)
    ]
    exponents = [row.get("exponent") for row in scaling.exponents(rows, "d")]
    assert exponents == [None, pytest.approx(1.5), pytest.approx(1.5)]


def test_what_ours_adds_is_held_against_what_others_add():
    added = [("ours", "SGLD", 2.0), ("a", "SGLD", 4.0), ("a", "CSGLD", 1.0)]
    rows = [
        {"library": library, "sampler": sampler, "added_ms": ms}
        for library, sampler, ms in [*added, ("b", "SGLD", -0.1)]
    ]
    ratios = [row.get("ours_over") for row in benchmark("peers").with_ratios(rows)]
    # No ratio without ours, nor where the other adds nothing that could be seen.
    assert ratios == [None, 0.5, None, None]


def test_the_page_is_what_the_generator_makes(performance):
    """There is none before there are measurements."""
    if not list(performance.FOLDER.glob("*.json")):
        assert not performance.PAGE.exists()
        return
    made = performance.page(performance.load())
    assert performance.PAGE.read_text(encoding="utf-8") == made, (
        "run `python docs/tools/performance.py`"
    )


def test_without_measurements_the_generator_says_what_to_run(performance, tmp_path):
    with pytest.raises(FileNotFoundError, match="examples/benchmarks/all.py"):
        performance.load(tmp_path)


@pytest.fixture
def results():
    """Contents of one file: steps of two samplers on JAX."""
    rows = [
        {
            "model": "mlp",
            "weights": 476_410,
            "optimizer": name,
            "ms": 2.0,
            "ratio": ratio,
        }
        for name, ratio in (("SGLD", 1.05), ("SGHMC", 1.5), ("floor", 1.0))
    ]
    rows[-1] |= {"draw_ms": 0.5, "generator": "rbg"}
    machine = {"processor": "P", "cores": 2, "memory_gb": 8, "system": "S"}
    content = {
        "command": "python step_time.py",
        "backend": "jax",
        "date": "2026-01-02",
        "rounds": 9,
        "quick": False,
        "machine": machine | {"accelerator": None},
        "versions": {"python": "3.11.0"},
        "rows": rows,
    }
    return {("jax", "step_time_mlp"): content}


def line_of(text, start):
    return next(line for line in text.splitlines() if line.startswith(f"| {start} |"))


def test_the_page_says_which_bars_were_missed(performance, results):
    text = performance.page(results)
    cells = line_of(text, "SGLD step / floor").split(" | ")
    assert cells[1] == "1.05 (at most 1.10)"
    assert cells[2].startswith("not measured (at most 1.15)")
    assert "**1.50 (at most 1.15): missed**" in line_of(text, "SGHMC step / floor")
    assert "Short runs" not in text and "2026-01-02, medians of 9 alternating" in text


def test_short_runs_are_no_measurements(performance, results):
    results = copy.deepcopy(results)
    results["jax", "step_time_mlp"]["quick"] = True
    text = performance.page(results)
    assert "not measured (at most 1.10)" in line_of(text, "SGLD step / floor")
    assert "Short runs" in text and "9, short run" in text
    assert line_of(text, "SGLD").startswith("| SGLD | 2.00 | 1.05 |")


SCRIPTS = {
    "chains": ["--chains", "1", "100"],
    "ensemble": [],
    "import_time": [],
    "memory": [],
    "parallel_chains": ["--model", "small"],
    "peers": [],
    "reuse": [],
    "scaling": [],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_benchmarks_run(name, tmp_path):
    path = tmp_path / "results.json"
    rows = benchmark(name).main(["--quick", *SCRIPTS[name], "--json", str(path)])
    assert len(json.loads(path.read_text())["rows"]) == len(rows) > 0
    for row in rows:
        for key, value in row.items():
            if key.endswith(("_ms", "_s", "_mb")) and key != "added_ms":
                assert value > 0.0
            if key.endswith("_us"):  # a difference of two short runs
                assert np.isfinite(value)


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "torch", reason="compiles on PyTorch")
def test_compiled_steps_are_timed(capsys):
    (row,) = benchmark("jit_compile").main(["--quick"])
    assert row["compilation_s"] > 0.0 and np.isfinite(row["ratio"])
    assert "seconds to compile" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="a script of tables")
def test_slots_are_counted_in_weights():
    """SGHMC has one for each of the 258 weights, RSGLD two, and a few numbers."""
    rows = benchmark("memory").main(["--quick"])
    slots = {row["optimizer"]: row["slots"] for row in rows}
    assert 1.0 < slots["SGHMC"] < 1.2 and 2.0 < slots["RSGLD"] < 3.0


@pytest.mark.slow
def test_all_runs_scripts_in_processes_of_their_own(tmp_path):
    backend = keras.backend.backend()
    arguments = ["--backend", backend, "--out", str(tmp_path), "--quick"]
    benchmark("all").main([*arguments, "--only", "import_time"])
    content = json.loads((tmp_path / f"{backend}_import_time.json").read_text())
    assert 0.0 < content["rows"][0]["beyond_s"] < content["rows"][0]["both_s"]


def test_all_has_every_file_that_a_bar_is_read_from(performance):
    names = {bar[1] for bar in performance.BARS}
    assert names <= set(benchmark("all").RUNS)


def test_a_short_last_batch_widens_what_is_sampled(capsys):
    module = benchmark("short_batch")
    kept, away = (
        module.variance(65, 16, flag, epochs=100, chains=50) for flag in (True, False)
    )
    # Four full ones and one of a single example.
    assert kept > 2 * away > 2
    assert len(module.main(["--quick"])) == 7
    assert "left away" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="a script of tables")
def test_baselines_train_score_and_go_on(capsys, tmp_path):
    pytest.importorskip("sklearn")
    module = benchmark("baselines")
    module.CHOICES = {"Laplace": (0.1, 10.0), "MC dropout": (0.5,)}
    path, methods = tmp_path / "rows.jsonl", ["SGD", "SWAG", "Laplace", "MC dropout"]
    words = ["--seeds", "1", "--epochs", "3", "--out", str(path), "--methods", *methods]
    rows = module.main(words)
    assert [row["method"] for row in rows] == methods
    assert [row["members"] for row in rows] == [1, 25, 25, 25]
    assert rows[2]["setting"] in (0.1, 10.0) and rows[3]["setting"] == 0.5
    for row in rows:
        assert 0.0 <= row["strongest"] < row["accuracy"] and 0.0 < row["nll"] < 3.0
    # The last layer of SGD's own network is drawn: the accuracy hardly changes.
    assert abs(rows[2]["accuracy"] - rows[0]["accuracy"]) < 0.1
    assert module.main(words) == rows
    assert "| Laplace, " in capsys.readouterr().out


def test_spikes_scores_the_samples_of_each_rate(capsys):
    pytest.importorskip("sklearn")
    words = "--rates 0.005 0.001 --seeds 1 --epochs 4"
    benchmark("spikes").main(words.split())
    lines = capsys.readouterr().out.splitlines()[2:]
    cells = [[float(cell) for cell in line.split("|")[1:-1]] for line in lines]
    assert [row[0] for row in cells] == [0.005, 0.001]
    for _, average, median, worst, accuracy, spike in cells:
        assert 0.0 < average <= median * 1.001 and median <= worst
        assert 0.0 <= accuracy <= 1.0 and spike >= 1.0


@pytest.mark.slow
def test_one_member_attacks_networks_and_their_ensembles(capsys, tmp_path):
    pytest.importorskip("sklearn")
    sizes = f"--epochs 3 --steps 2 --methods SGD PSGLD --out {tmp_path / 'rows'}"
    (row,) = benchmark("one_member").main([*sizes.split(), "--seeds", "1"])
    assert list(row) == [
        f"{name}, {part}"
        for name in ("SGD", "PSGLD")
        for part in ("last state", "ensemble")
    ]
    # One step of SGD is not like the mean of many, and the attack succeeds.
    assert row["SGD, last state"] != row["SGD, ensemble"]
    assert all(strongest < accuracy for accuracy, _, strongest in row.values())
    assert benchmark("one_member").main([*sizes.split(), "--seeds", "1"]) == [row]
    assert "strongest minus SGD's" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="processes of JAX")
def test_processes_prints_what_machines_exchange(capsys):
    (row,) = benchmark("processes").main(["--quick"])
    assert row["weights"] == 1_000 and row["all_reduce_ms"] > 0.0
    assert 4_000 < row["bytes"] < 20_000 and row["write_ms"] > 0.0
    assert "bytes of a sample" in capsys.readouterr().out


@pytest.mark.slow
def test_control_variates_narrow_the_draws(capsys):
    sizes = "--rows 1000 --batch 20 --rates 0.3 --steps 300 --chains 16 --draws 500"
    found = benchmark("control_variates").main(sizes.split())
    assert [row[:3] for row in found] == [
        (name, 0.3, with_variates)
        for name in ("SGLD", "SGHMC")
        for with_variates in (False, True)
    ]
    for plain, controlled in zip(found[::2], found[1::2], strict=True):
        assert plain[3] > 1.3 and abs(controlled[3] - 1.0) < 0.2
    assert "| SGHMC | 0.03 | yes | " in capsys.readouterr().out
