"""examples/accelerator.py: its stages, what it skips, and what the pages make of it."""

import json
import warnings

import keras
import numpy as np
import pytest

from tests.support.example_tools import load
from tests.test_benchmarks import DOCS
from tests.test_benchmarks import benchmark

pytestmark = pytest.mark.slow
BACKEND = keras.backend.backend()


@pytest.fixture(autouse=True)
def backend_in_the_environment(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", BACKEND)


@pytest.fixture
def pages(monkeypatch):
    """The module docs/tools/accelerator_rows.py."""
    monkeypatch.syspath_prepend(str(DOCS / "tools"))
    return load("../docs/tools/accelerator_rows")


def test_smoke_checks_every_kind_of_run(tmp_path):
    path = tmp_path / "smoke.json"
    benchmark("smoke").main(["--quick", "--only", "RSGLD", "--json", str(path)])
    content = json.loads(path.read_text())
    rows = content["rows"]
    assert content["complete"] and len(rows) == 4  # two dtypes, one chain and several
    assert all(row["is_finite"] and row["has_moved"] for row in rows)
    assert {row["devices"] for row in rows} == {"cpu"}
    assert rows[0]["resumed_difference"] == 0.0


def test_smoke_fails_for_a_sampler_that_stands_still(monkeypatch):
    smoke = benchmark("smoke")
    found = {"is_finite": True, "has_moved": False, "devices": "cpu"}
    monkeypatch.setattr(smoke, "check", lambda *_: found)
    monkeypatch.setattr(smoke, "check_chains", lambda *_: found | {"has_moved": True})
    with pytest.raises(SystemExit, match=r"standing still: SGLD \(float32\)"):
        smoke.main(["--quick", "--only", "SGLD"])


def test_a_step_of_a_sampler_calls_no_python():
    rows = benchmark("host_reads").main(["--quick", "--only", "RSGLD"])
    assert [row["optimizer"] for row in rows] == ["SGD", "RSGLD"]
    # On a CPU nothing is copied; PyTorch runs no program that could call back.
    assert {row["reads"] for row in rows} == {None}
    assert {row["calls"] for row in rows} == {None if BACKEND == "torch" else 0}


@pytest.mark.skipif(BACKEND == "torch", reason="there is no program of a step")
def test_a_call_back_to_python_is_counted():
    host_reads = benchmark("host_reads")

    def loss(y_true, y_pred):
        if BACKEND == "jax":
            import jax

            jax.debug.callback(lambda value: None, y_pred[0, 0])
        else:
            import tensorflow as tf

            tf.py_function(lambda value: value, [y_pred[0, 0]], "float32")
        return keras.ops.mean(keras.ops.square(y_pred), axis=-1)

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(), loss)
    x, y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
    model.fit(x, y, verbose=0)
    count = {"jax": "calls_of_jax", "tensorflow": "calls_of_tensorflow"}[BACKEND]
    assert getattr(host_reads, count)(model, x, y) > 0


def test_synchronizations_are_those_of_the_steps(monkeypatch):
    """With a device that synchronizes once in each step, and once outside them."""
    torch = pytest.importorskip("torch")
    host_reads = benchmark("host_reads")
    modes = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def wait():
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)

    counted = host_reads.Counted(host_reads.synchronizations)
    for step in range(3):
        counted.on_train_batch_begin(step)
        wait()
        counted.on_train_batch_end(step)
        with pytest.warns(UserWarning):
            wait()
    assert counted.reads == 3 and modes == ["warn", "default"] * 3


def test_a_stage_that_is_there_is_skipped(tmp_path, capfd):
    accelerator = load("accelerator")
    arguments = ["--quick", "--out", str(tmp_path), "--stages", "attack_speed"]
    assert accelerator.main(arguments) == {}
    first = capfd.readouterr().out
    assert "images a second" in first and "1 stages are done" in first
    path = tmp_path / f"{BACKEND}_attack_speed.json"
    made = path.read_text()
    assert accelerator.main(arguments) == {}
    assert "attack_speed (1 of 1): images a second under PGD: is there" in (
        capfd.readouterr().out
    )
    assert path.read_text() == made
    # A file that was cut off is none.
    path.write_text(json.dumps({**json.loads(made), "complete": False}))
    assert not accelerator.is_done(accelerator.parse(arguments), "attack_speed")


def test_what_is_left_is_said(tmp_path, monkeypatch, capsys):
    accelerator = load("accelerator")
    script = tmp_path / "stage.py"
    monkeypatch.setattr(accelerator, "HERE", tmp_path)
    monkeypatch.setattr(
        accelerator,
        "STAGES",
        {
            "fails": accelerator.Stage("a stage", "stage.py", ("3",)),
            "waits": accelerator.Stage("a stage", "stage.py", ("wait",)),
            "stops": accelerator.Stage("a stage", "stage.py", ("0",)),
            "lacks": accelerator.Stage("a stage", "stage.py", data="--data {folder}"),
        },
    )
    script.write_text(
        "import sys, time\n"
        "time.sleep(60) if sys.argv[1] == 'wait' else sys.exit(int(sys.argv[1]))\n"
    )
    left = accelerator.main(["--out", str(tmp_path), "--minutes", "0.05"])
    assert left == {
        "fails": "failed with exit status 3",
        "waits": "took more than 0.05 minutes; give it more with --minutes",
        "stops": "is not finished; the command goes on",
        "lacks": "needs --data-dir",
    }
    assert "== left: lacks needs --data-dir" in capsys.readouterr().out


def test_words_of_a_stage_with_data(tmp_path):
    accelerator = load("accelerator")
    args = accelerator.parse(["--data-dir", "a folder", "--out", str(tmp_path)])
    words = accelerator.command(args, "table1")
    assert words[words.index("--data") + 1] == "a folder/mnist.npz"
    assert words[words.index("--minutes") + 1] == "2.1"
    assert words[-2:] == ["--json", str(tmp_path / f"{BACKEND}_table1.json")]


@pytest.mark.slow
def test_all_stages_run(tmp_path):
    accelerator = load("accelerator")
    arguments = ["--quick", "--out", str(tmp_path), "--minutes", "20"]
    assert accelerator.main(arguments) == {}
    for name in accelerator.STAGES:
        assert (tmp_path / f"{BACKEND}_{name}.json").exists()


def test_only_runs_on_an_accelerator_are_measurements(pages, tmp_path):
    row = {"optimizer": "RSGLD", "times_one": 2.5}
    table1 = {"method": "SGD", "rate": 0.4, "epochs": 25, "chains": 2}

    def write(name, accelerator="G", quick=False, rows=(row,)):
        about = {"machine": {"accelerator": accelerator}, "quick": quick}
        text = json.dumps({**about, "rows": list(rows)})
        (tmp_path / name).write_text(text)

    write("jax_parallel_chains.json")
    write("torch_parallel_chains.json", accelerator=None)
    write("tensorflow_parallel_chains.json", quick=True)
    runs = {"rows": [table1 | {"errors": [[3.0, 2.0], [1.5, 1.7]]}]}
    for backend in ("jax", "torch"):
        (tmp_path / f"{backend}_table1.json").write_text(json.dumps(runs))
    ran = {"is_finite": True, "has_moved": True, "resumed_difference": 0.0}
    runs = ran, ran | {"has_moved": False}, ran | {"resumed_difference": 1e-3}
    runs += ({"is_finite": True, "has_moved": True},)  # not resumed
    write("jax_smoke.json", rows=runs)
    times = {"SGD": 1.0, "RSGLD": 2.5, "SGLD": 2.0}
    times = [{"optimizer": name, "ms": ms} for name, ms in times.items()]
    write("jax_step_time_mlp.json", rows=times)
    results = pages.load(tmp_path)
    text = "\n".join(pages.performance_lines(results))
    assert (
        "| 30 chains / one chain, perceptron 784-600-10, slower of SGLD and RSGLD "
        "(goal 3) | 2.5 (RSGLD) | not measured | not measured |" in text
    )
    assert "Measured on G by" in text
    assert "stay finite | 4 of 4 | not measured |" in text
    assert "equal bit for bit | 2 of 3 | not measured |" in text
    assert "accept a move | 3 of 4 | not measured |" in text
    assert "SGD; slowest of 5 samplers | 1.00; 2.50 (RSGLD) | not measured" in text
    found = pages.reproduction_lines(results)
    wanted = "MHBT table 1, SGD at 0.4, 25 epochs, 2 chains"
    assert f"| {wanted} | JAX | 1.60% test error (median) |" in found
    assert sum("table 1" in line for line in found) == 1
    assert "| MHBT table 2 |  | not measured |" in found


def test_the_page_of_the_papers_has_what_the_files_say(pages):
    text = pages.PAGE.read_text(encoding="utf-8")
    assert text.count(pages.MARKS[0]) == text.count(pages.MARKS[1]) == 1
    assert pages.fill(text, pages.load()) == text, (
        "run `python docs/tools/accelerator_rows.py`"
    )
