"""Compare the draws and files of this package with those of an earlier commit.

    git worktree add ../earlier 28f86cb
    KERAS_BACKEND=jax python tests/compare_houses.py ../earlier [row ...]

Each tree runs the rows below in a process of its own: `fit` with samples on the disk, a
settle, a saved model that goes on, many chains, and `mh.sample` with its resumed state.
All numbers must be equal bit by bit. The model that the earlier tree has saved must go
on here as it does there. Results of the earlier tree are kept beside it.
"""

import functools
import importlib
import inspect
import json
import os
import pathlib
import shutil
import subprocess
import sys
import types
import zipfile

# The tree, in place of the folder of this file.
sys.path[0] = os.environ.get("TREE", str(pathlib.Path(__file__).parents[1]))

import h5py
import keras
import numpy as np

import keras_mhmcmc as mh
from keras_mhmcmc.sampling import loop
from tests.support import barker_chains
from tests.support import exchange_tools
from tests.support import minibatch_tools as tools
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.samplers import SAMPLERS

# The room of these tests had another name until the commit after 16cecc6.
ROOM = "samplers" if os.path.isdir(f"{sys.path[0]}/tests/samplers") else "algorithms"
test_equi_energy = importlib.import_module(f"tests.{ROOM}.test_equi_energy")
# Entries of JSON files that differ from run to run, and where a class stands.
DIFFERING = {"date_saved", "shared_object_id", "run", "sha256", "base_sha256", "module"}


def values(prefix, found):
    """The numbers in `found` by name, also of tuples, lists, dicts and objects."""
    if not isinstance(found, dict | list | tuple):
        return {prefix: np.asarray(found)}
    items = found.items() if isinstance(found, dict) else enumerate(found)
    parts = [values(f"{prefix}/{key}", value) for key, value in items]
    return {name: value for part in parts for name, value in part.items()}


def plain(entry):
    """An entry of a JSON file without what differs from run to run."""
    if isinstance(entry, dict):
        return {key: plain(entry[key]) for key in sorted(entry.keys() - DIFFERING)}
    return [plain(x) for x in entry] if isinstance(entry, list) else entry


def of_files(folder):
    """The entries of all JSON files in a folder, and the arrays of all HDF5 files."""
    found = {}
    for path in sorted(folder.rglob("*.*")):
        if path.suffix == ".json":
            found[path.name] = json.dumps(plain(json.loads(path.read_text())))
        elif path.suffix == ".h5":
            with h5py.File(path) as file:
                names = []
                file.visit(names.append)
                arrays = {n: file[n] for n in names if hasattr(file[n], "shape")}
                found[path.name] = {n: array[()] for n, array in arrays.items()}
    return found


def made(model, posterior, folder):
    """All that a fitted sampler has made."""
    return dict(
        weights=[numpy(v) for v in model.weights],
        state=[numpy(v) for v in model.optimizer.variables],
        diagnostics=model.optimizer.chain_diagnostics(),
        samples=posterior.weights,
        energies=posterior.energies,
        files=of_files(folder),
    )


def fitted(make, train, compile_model, folder):
    """A fit that is settled, saved and resumed."""
    keras.utils.clear_session()  # layers are named anew
    keras.utils.set_random_seed(0)
    model = compile_model(make(seed=3))
    posterior = mh.PosteriorSamples(burn_in=4, every=3, directory=folder / "first")
    train(model, epochs=4, callbacks=[posterior])
    model.optimizer.settle()
    model.save(folder / "model.keras")
    with zipfile.ZipFile(folder / "model.keras") as file:
        file.extractall(folder / "zip")
    saved = of_files(folder / "zip")
    return dict(first=made(model, posterior, folder / "first"), saved=saved)


def resumed(train, folder, path):
    """A saved model that goes on."""
    model = keras.models.load_model(path)
    posterior = mh.PosteriorSamples(every=2, directory=folder)
    train(model, epochs=3, callbacks=[posterior])
    model.optimizer.settle()
    return made(model, posterior, folder)


def chains_of(make):
    """Two chains of one network."""
    model = compiled(make(seed=3))
    chains = mh.ParallelChains(model, 2, seed=0)
    chains.compile(make(seed=3), model.loss)
    posterior = mh.PosteriorSamples()
    fit(chains, epochs=2, callbacks=[posterior])
    found = chains.optimizer.chain_diagnostics()
    return [posterior.weights, posterior.energies, found]


def sampled(kernel, steps=40, **options):
    """Chains of a posterior, and the same ones as they go on."""
    given = dict(data=(tools.X, tools.Y), seed=2, progress=False)
    given |= dict(log_likelihood=tools.log_likelihood, log_prior=tools.log_prior)
    given |= options
    start = np.full((3, 2), 0.2, "float32")
    draws = mh.sample(kernel, start, num_chains=3, num_steps=steps, **given)
    given["burn_in"] = 0
    more = mh.sample(kernel, draws.state, num_steps=12, **given)
    return [[d.position, d.weights, d.info, d.state[:5]] for d in (draws, more)]


def rows():
    """Name -> arguments of `fitted` or of `sampled`."""
    found = {}
    for name, row in SAMPLERS.items():
        found[f"fit.{name}"] = (row.make, fit, compiled)
        if row.kernel is not None:
            taken = inspect.signature(row.kernel).parameters
            given = {k: v for k, v in row.arguments.items() if k in taken}
            options = dict(batch_size=8)
            if "prior" in given:
                given["prior"] = mh.priors.SpikeSlab("position", v0=1e-2, v1=1.0)
                options["log_prior"] = None
            found[f"sample.{name}"] = (row.kernel(**given), options)
    make = functools.partial(mh.AMAGOLD, 0.02, train_size=96, warm_up=2)
    found["fit.amagold"] = (make, fit, compiled)
    compile_chain = lambda sampler: barker_chains.compiled(None, sampler)
    found["fit.barker"] = (barker_chains.sampler, barker_chains.fit, compile_chain)
    auto = dict(partition="auto", pilot_steps=20, zeta=1.0)
    for name in ("CSGLD", "CSGHMC"):
        make = functools.partial(getattr(mh, name), 0.02, train_size=96, **auto)
        name = name.lower()
        found[f"fit.{name}_auto"] = (make, fit, compiled)
        kernel = getattr(mh.kernels, name)(0.05, **auto, shared_density=True)
        found[f"sample.{name}_auto"] = (kernel, dict(batch_size=8, burn_in=20))
    for kind in (mh.kernels.hmc, mh.kernels.mclmc):
        found[f"sample.{kind.__name__}_adapted"] = (kind(warm_up=30), dict(burn_in=30))
    for name, (kernel, options) in tools.KERNELS.items():
        found[f"sample.{name.replace(' ', '_')}"] = (kernel, options | dict(steps=40))
    return found


def ladders():
    """Runs at many temperatures."""
    runs = [(kernel, {}) for kernel in exchange_tools.KERNELS.values()]
    likelihood = exchange_tools.noisy_gaussian(0.1)
    data = dict(data=exchange_tools.NOISE, batch_size=20, log_likelihood=likelihood)
    runs += [(mh.kernels.sghmc(0.005), data), (mh.kernels.sgnht(0.005), data)]
    found = [test_equi_energy.run()]
    for kernel, options in runs:
        given = dict(steps=30, chains=4, swap_every=2) | options
        found.append(exchange_tools.run(kernel, **given))
    return [[d.position, d.info, d.state[:5]] for d in found]


def probe(folder, saved, wanted):
    """Write the numbers of rows. `saved` has the models of the earlier tree."""
    print(mh.__file__, flush=True)
    # A run is cut in pieces by the clock, and some means are sums over pieces.
    loop.time = types.SimpleNamespace(perf_counter=lambda: 0.0)
    table = rows()
    for name in wanted:
        place = folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        if name == "ladders":
            found = ladders()
        elif name.startswith("sample."):
            kernel, options = table[name]
            found = sampled(kernel, **options)
        else:
            make, train, compile_model = table[name]
            found = fitted(make, train, compile_model, place)
            model = saved / name / "model.keras"
            found["second"] = resumed(train, place / "second", model)
            is_long = name.endswith("_auto")  # its pilot is longer than the fit
            if train is fit and name != "fit.amagold" and not is_long:
                found["chains"] = chains_of(make)
        np.savez(place / "values.npz", **values("", found))


def differences(a, b):
    """The names of what is not equal bit by bit."""
    with np.load(a) as one, np.load(b) as two:
        names = sorted(set(one.files) ^ set(two.files))
        for name in set(one.files) & set(two.files):
            x, y = one[name], two[name]
            if (x.dtype, x.shape, x.tobytes()) != (y.dtype, y.shape, y.tobytes()):
                names.append(name)
        return len(one.files), names


def main(earlier, wanted):
    """Run both trees, and return whether all rows are equal."""
    scratch = pathlib.Path(f"{earlier}.results") / os.environ["KERAS_BACKEND"]
    kept, new = scratch / "earlier", scratch / "here"
    missing = [name for name in wanted if not (kept / name / "values.npz").exists()]
    if missing:
        command = [sys.executable, __file__, "--probe", str(kept), *missing]
        environment = os.environ | {"TREE": str(earlier)}
        subprocess.run(command, check=True, cwd=earlier, env=environment)
    probe(new, kept, wanted)
    is_equal = True
    for name in wanted:
        here, there = new / name / "values.npz", kept / name / "values.npz"
        count, names = differences(there, here)
        is_equal &= not names
        print(f"{name}: {count} arrays,", f"DIFFER: {names[:6]}" if names else "equal")
    return is_equal


if __name__ == "__main__":
    if sys.argv[1] == "--probe":
        folder = pathlib.Path(sys.argv[2])
        probe(folder, folder, sys.argv[3:])
    else:
        earlier, *wanted = sys.argv[1:]
        everything = [*rows(), "ladders"]
        names = [n for n in everything if not wanted or n.split(".")[-1] in wanted]
        sys.exit(not main(pathlib.Path(earlier).resolve(), names))
