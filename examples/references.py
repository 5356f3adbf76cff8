"""Reference posteriors of small Bayesian models, from long NUTS chains in float64.

`examples/results/references/` has a file for each problem of reference_problems.py. It
holds what `mh.diagnostics.agreement` needs to judge a sampler: mean and standard
deviation of the predictions over all draws, their effective sample sizes, and 200 or
fewer members. The chains run once. A stopped run goes on where it stopped, and gives
the same numbers as a run without the stop.

    python examples/references.py logistic softmax sine --work work
    python examples/references.py yacht --work work --data-dir folder
    python examples/references.py --show

The run needs JAX, blackjax, ArviZ and scikit-learn. Reading a file needs none of them.
A file is not written if R-hat of a prediction exceeds 1.01, unless `--max-r-hat` says
so.
"""

import argparse
import functools
import hashlib
import os
import time
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
import reference_problems

FOLDER = Path(__file__).parent / "results" / "references"
CHAINS = 8
MAX_R_HAT = 1.01


class Plan(NamedTuple):
    """How long the chains of a problem run, and what is kept."""

    warmup: int = 1000  # steps of adaptation
    chunks: int = 10  # parts of the run, each saved
    draws: int = 200  # of each chain, in a part
    every: int = 1  # keep each so many of them
    members: int = 200  # in the file
    dtype: str = "float32"  # of the members
    acceptance: float = 0.8  # that the step size is adapted to


PLANS = {
    "logistic": Plan(chunks=5),
    "softmax": Plan(warmup=500, chunks=6, draws=100, members=100, dtype="float16"),
    "sine": Plan(chunks=3, draws=1000, every=5, acceptance=0.9),
    "yacht": Plan(acceptance=0.9),
    "digits": Plan(members=100, dtype="float16", acceptance=0.9),
}


class Reference(NamedTuple):
    """A stored reference posterior.

    Attributes:
        members: predictions of a thinned set of draws: probabilities (members,
            examples, classes), or means of the target (members, examples); float64.
        mean: mean of the predictions over all draws, float64.
        sd: standard deviation of the predictions over all draws, float64.
        ess: effective sample size of each prediction's mean.
        r_hat: rank-normalised R-hat of each prediction.
        weight_mean: dict of the means of the weights; empty if the weights are not
            identifiable.
        weight_sd: dict of their standard deviations, likewise.
        about: dict of the settings: chains, draws, warmup, seed, fingerprint, seconds,
            step size, divergences.
    """

    members: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    ess: np.ndarray
    r_hat: np.ndarray
    weight_mean: dict
    weight_sd: dict
    about: dict

    def arguments(self):
        """What `mh.diagnostics.agreement` takes, except for the predictions."""
        return {
            "reference": self.members,
            "reference_mean": self.mean,
            "reference_sd": self.sd,
            "reference_ess": self.ess,
        }


def load(name, problem=None, folder=FOLDER):
    """Return the `Reference` of a problem.

    If `problem` is given and its data are not those of the reference, raise a
    `ValueError`.
    """
    with np.load(Path(folder) / f"{name}.npz") as file:
        stored = {key: file[key] for key in file.files}
    about = {
        key.removeprefix("about_"): stored[key].item()
        for key in stored
        if key.startswith("about_")
    }
    if problem is not None and problem.fingerprint() != about["fingerprint"]:
        raise ValueError(
            "Argument `problem` must have the data of the reference. Its data have "
            f"the fingerprint {problem.fingerprint()}, those of the reference "
            f"{about['fingerprint']}. Received: {name!r}"
        )
    arrays = {
        key: stored[key].astype("float64")
        for key in ("members", "mean", "sd", "ess", "r_hat")
    }
    if about["task"] == "classification":
        # Half precision rounds probabilities: their sums are 1 up to 0.0005.
        arrays["members"] /= arrays["members"].sum(axis=-1, keepdims=True)
    return Reference(
        **arrays,
        weight_mean=_part(stored, "mean_of_"),
        weight_sd=_part(stored, "sd_of_"),
        about=about,
    )


def _part(stored, prefix):
    return {
        k.removeprefix(prefix): v for k, v in stored.items() if k.startswith(prefix)
    }


class Sampler:
    """NUTS on a problem, in float64 on JAX, in parts that are saved."""

    def __init__(self, problem, plan, seed):
        import blackjax
        import jax

        if keras.backend.backend() != "jax":
            raise ValueError("NUTS needs KERAS_BACKEND=jax.")
        jax.config.update("jax_enable_x64", True)
        self._blackjax, self._jax = blackjax, jax
        self._problem, self._plan = problem, plan
        self._key = jax.random.key(seed)
        self._data = {
            k: jax.numpy.asarray(v, "float64") for k, v in problem.data.items()
        }
        self._x_test = jax.numpy.asarray(problem.x_test, "float64")

    def log_density(self, position):
        """Log likelihood of all the data and log prior of one chain's position."""
        likelihood = self._problem.log_likelihood(position, self._data)
        return likelihood.sum() + reference_problems.log_prior(position)

    def warm_up(self):
        """Adapt step sizes and mass matrices. Returns the chains' states, and these."""
        jax, shapes = self._jax, self._problem.shapes
        adaptation = self._blackjax.window_adaptation(
            self._blackjax.nuts,
            self.log_density,
            target_acceptance_rate=self._plan.acceptance,
            adaptation_info_fn=lambda *_: None,
        )

        def one_chain(key):
            start, run = jax.random.split(key)
            keys = jax.random.split(start, len(shapes))
            position = {
                name: 0.5 * jax.random.normal(k, shapes[name], "float64")
                for name, k in zip(sorted(shapes), keys, strict=True)
            }
            (state, settings), _ = adaptation.run(run, position, self._plan.warmup)
            return state, settings["step_size"], settings["inverse_mass_matrix"]

        keys = jax.random.split(jax.random.fold_in(self._key, 0), CHAINS)
        return jax.jit(jax.vmap(one_chain))(keys)

    @functools.cached_property
    def _run(self):
        jax, plan = self._jax, self._plan

        def one_chain(key, state, step_size, matrix):
            kernel = self._blackjax.nuts(self.log_density, step_size, matrix)

            def step(state, key):
                state, info = kernel.step(key, state)
                return state, (info.is_divergent, info.num_integration_steps)

            def kept(state, key):
                keys = jax.random.split(key, plan.every)
                state, info = jax.lax.scan(step, state, keys)
                prediction = self._problem.predict(state.position, self._x_test)
                return state, (prediction, state.position, info)

            return jax.lax.scan(
                kept, state, jax.random.split(key, plan.draws // plan.every)
            )

        return jax.jit(jax.vmap(one_chain))

    def part(self, number, adapted):
        """Run part `number`, from 1. Returns the adapted chains and their draws."""
        state, step_size, matrix = adapted
        keys = self._jax.random.split(
            self._jax.random.fold_in(self._key, number), CHAINS
        )
        state, (predictions, position, info) = self._run(keys, state, step_size, matrix)
        found = {"predictions": np.asarray(predictions)}
        found |= {"divergent": np.asarray(info[0]), "gradients": np.asarray(info[1])}
        if self._problem.is_identifiable:
            found |= {f"weight_{k}": np.asarray(v) for k, v in position.items()}
        return (state, step_size, matrix), found


def run(problem, plan, work, seed=0, stop_after=None):
    """Run what is missing of the chains. Returns the arrays of all parts, or None.

    `work` is the folder of the parts. If the run stops after `stop_after` new parts, it
    returns None.
    """
    sampler = Sampler(problem, plan, seed)
    work = Path(work)
    work.mkdir(parents=True, exist_ok=True)
    # What changes the numbers. More parts go on where the others ended.
    settings = (plan.warmup, plan.draws, plan.every, plan.acceptance, CHAINS)
    settings = hashlib.sha256(repr(settings).encode()).hexdigest()[:8]
    base = f"{problem.name}-{problem.fingerprint()}-{settings}-{seed}"
    tree, begin, fresh = sampler._jax.tree, time.perf_counter(), 0
    shape = sampler._jax.eval_shape(sampler.warm_up)
    adapted = None
    for number in range(plan.chunks + 1):
        path = work / f"{base}-{number}.npz"
        if not path.exists():
            if fresh == stop_after:
                return None
            if adapted is None and number:
                adapted = _restored(tree, shape, work / f"{base}-{number - 1}.npz")
            if number == 0:
                adapted, found = sampler.warm_up(), {}
            else:
                adapted, found = sampler.part(number, adapted)
            leaves = {
                f"leaf_{i}": np.asarray(v) for i, v in enumerate(tree.leaves(adapted))
            }
            seconds = time.perf_counter() - begin
            temporary = path.with_suffix(".tmp.npz")
            np.savez(temporary, seconds=seconds, **leaves, **found)
            temporary.replace(path)
            begin, fresh = time.perf_counter(), fresh + 1
            print(
                f"{problem.name}: part {number} of {plan.chunks}, {seconds:.0f} s",
                flush=True,
            )
        else:
            adapted = None
    return _joined([work / f"{base}-{number}.npz" for number in range(plan.chunks + 1)])


def _restored(tree, shape, path):
    """The chains at the end of a saved part."""
    with np.load(path) as file:
        count = len(tree.leaves(shape))
        leaves = [file[f"leaf_{index}"] for index in range(count)]
    return tree.unflatten(tree.structure(shape), leaves)


def _joined(paths):
    """The arrays of all parts, along the draws, and the seconds of all parts."""
    seconds, parts = 0.0, []
    for path in paths:
        with np.load(path) as file:
            seconds += float(file["seconds"])
            keys = [
                k for k in file.files if k != "seconds" and not k.startswith("leaf_")
            ]
            parts.append({key: file[key] for key in keys})
    found = {k: np.concatenate([part[k] for part in parts[1:]], 1) for k in parts[1]}
    return found | {"seconds": seconds}


def summary(problem, plan, found, seed):
    """The arrays of a file, from the arrays of all parts."""
    import arviz

    draws = found["predictions"]  # (chains, draws, examples) or (..., classes)
    columns = draws.reshape(*draws.shape[:2], -1)
    deviations = np.square(columns - columns.mean(axis=(0, 1)))
    shape = draws.shape[2:]
    r_hat = [float(arviz.rhat(columns[:, :, i])) for i in range(columns.shape[2])]
    # Mean and standard deviation need the mean of the values and of their squares.
    ess = [
        min(float(arviz.ess(x[:, :, i], method="mean")) for x in (columns, deviations))
        for i in range(columns.shape[2])
    ]
    flat = draws.reshape(-1, *shape)
    chosen = np.linspace(0, len(flat) - 1, plan.members).round().astype(int)
    about = {
        "name": problem.name,
        "task": problem.task,
        "fingerprint": problem.fingerprint(),
        "seed": seed,
        "chains": draws.shape[0],
        "draws": draws.shape[1],
        "every": plan.every,
        "warmup": plan.warmup,
        "divergent": int(found["divergent"].sum()),
        "gradients": int(found["gradients"].sum()),
        "seconds": round(found["seconds"], 1),
        "largest_r_hat": max(r_hat),
        "smallest_ess": min(ess),
    }
    weights = _part(found, "weight_")
    return {
        "members": flat[chosen].astype(plan.dtype),
        "mean": flat.mean(axis=0).astype("float32"),
        "sd": flat.std(axis=0).astype("float32"),
        "ess": np.reshape(ess, shape).astype("float32"),
        "r_hat": np.reshape(r_hat, shape).astype("float32"),
        **{f"mean_of_{k}": v.mean(axis=(0, 1)) for k, v in weights.items()},
        **{f"sd_of_{k}": v.std(axis=(0, 1)) for k, v in weights.items()},
        **{f"about_{key}": np.array(value) for key, value in about.items()},
    }


def write(path, arrays, max_r_hat=MAX_R_HAT):
    """Write a file, unless R-hat of a prediction exceeds `max_r_hat`."""
    largest = float(arrays["about_largest_r_hat"])
    if not largest <= max_r_hat:
        raise ValueError(
            f"The chains must agree: R-hat of every prediction at most {max_r_hat:g}. "
            f"Run more parts, or say --max-r-hat. Received: {largest:.4f}"
        )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)


def line(name, folder=FOLDER):
    """What a stored reference is, in a line."""
    reference = load(name, folder=folder)
    about = reference.about
    size = (Path(folder) / f"{name}.npz").stat().st_size
    return (
        f"{name:9s} {about['chains']} x {about['draws']} draws, "
        f"R-hat at most {about['largest_r_hat']:.4f}, "
        f"ESS at least {about['smallest_ess']:.0f}, {about['divergent']} divergent, "
        f"{about['seconds']:.0f} s, {size / 1000:.0f} kB"
    )


def main(argv=None):
    """Run the chains that are asked for, write their files, print a line for each."""
    args = parse(argv)
    names = args.names
    if args.show:
        names = names or sorted(path.stem for path in args.out.glob("*.npz"))
    for name in names:
        if not args.show:
            problem = reference_problems.problem(name, args.data_dir)
            plan = PLANS[name]
            if args.chunks is not None:
                plan = plan._replace(chunks=args.chunks)
            found = run(problem, plan, args.work, args.seed)
            arrays = summary(problem, plan, found, args.seed)
            write(args.out / f"{name}.npz", arrays, args.max_r_hat)
        print(line(name, args.out), flush=True)


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="name", help="of a problem")
    parser.add_argument("--work", type=Path, default=Path("out/references"))
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the files")
    parser.add_argument("--data-dir", help="folder with UCI files, for yacht")
    parser.add_argument("--chunks", type=int, help="parts of the run")
    parser.add_argument("--max-r-hat", type=float, default=MAX_R_HAT)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="only print what is there")
    args = parser.parse_args(argv)
    for name in args.names:
        if name not in reference_problems.NAMES:
            parser.error(
                f"{name!r} is not one of {', '.join(reference_problems.NAMES)}"
            )
    if not args.names and not args.show:
        parser.error("name a problem, or say --show")
    return args


if __name__ == "__main__":
    main()
