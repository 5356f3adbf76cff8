"""A process that imports everything once and forks a new one for each task.

`process_tools.Processes` runs it as a script and talks to it. It computes nothing
itself, so that a fork of it is as good as a process that was started anew.
"""

import json
import os
import shutil
import signal
import sys
import traceback
from contextlib import suppress

import keras
import numpy as np

import keras_mhmcmc as mh
from tests import conftest  # noqa: F401  (sets up the framework)
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.samplers import SAMPLERS


def state_of(model):
    """Copies of all that a run goes on from: name to array."""
    arrays = {f"weight {i}": numpy(v) for i, v in enumerate(model.weights)}
    kept = {id(variable) for variable in model.weights}
    others = [v for v in model.variables if id(v) not in kept]
    arrays |= {f"generator {i}": numpy(v) for i, v in enumerate(others)}
    for i, variable in enumerate(model.optimizer.variables):
        arrays[f"optimizer {i}"] = numpy(variable)
    return arrays


def samples_of(model, directory):
    """What a directory holds, and the prediction of its ensemble: name to array."""
    posterior = mh.PosteriorSamples.load(directory)
    arrays = {f"sample {i}": a for i, a in enumerate(posterior._store.read(model))}
    arrays["iterations"] = posterior.iterations
    arrays["importance"] = posterior.weights
    arrays["energies"] = posterior.energies
    arrays["prediction"] = posterior.ensemble(model).predict(data()[0], verbose=0)
    return arrays


def go_on(path, directory, every, epochs, result):
    """Loads a model, goes on with its chain, and says what came of it."""
    model = keras.models.load_model(path)
    posterior = mh.PosteriorSamples(every=every, directory=directory)
    fit(model, epochs=epochs, callbacks=[posterior])
    np.savez(result, **state_of(model), **samples_of(model, directory))


class Interruption(keras.callbacks.Callback):
    """Stops a run in an epoch, by an exception or by the death of the process."""

    def __init__(self, epoch, kills=False):
        super().__init__()
        self._stop_in, self._kills = epoch, kills
        self._epoch = None

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self._epoch == self._stop_in and batch == 2:
            if self._kills:
                os.kill(os.getpid(), signal.SIGKILL)
            raise InterruptedError


def with_backup(make, folder, epochs, every=5, is_first=True, others=()):
    """A run that goes on from its backup, if it has one; returns the model."""
    model = compiled(make())
    callbacks = [
        mh.PosteriorSamples(every=every, directory=os.path.join(folder, "samples")),
        keras.callbacks.BackupAndRestore(
            os.path.join(folder, "backup"), delete_checkpoint=False
        ),
    ]
    if not is_first:
        callbacks.reverse()
    fit(model, epochs=epochs, callbacks=[*callbacks, *others])
    return model


def backed_up(name, folder, epochs, every, is_first, stop_in, result, seed=3):
    """`with_backup` of a sampler, which dies in the epoch `stop_in`."""

    def make():
        return SAMPLERS[name].make(seed=seed)

    others = [] if stop_in is None else [Interruption(stop_in, kills=True)]
    model = with_backup(make, folder, epochs, every, is_first, others)
    samples = samples_of(model, os.path.join(folder, "samples"))
    np.savez(result, **state_of(model), **samples)


class Checkpoint(keras.callbacks.Callback):
    """The weights after each epoch, in a file that is whole or is not there."""

    def __init__(self, folder):
        super().__init__()
        self._folder = folder

    def on_epoch_end(self, epoch, logs=None):
        path = os.path.join(self._folder, f"{epoch + 1:05d}.weights.h5")
        temporary = os.path.join(self._folder, "next.weights.h5")
        self.model.save_weights(temporary)
        os.replace(temporary, path)


def fit_forever(folder, max_samples, epochs, seed=3):
    """Keeps a sample after each step, and goes on where the last process died."""
    model = compiled(SAMPLERS["csgld"].make(seed=seed))
    checkpoints = os.path.join(folder, "checkpoints")
    os.makedirs(checkpoints, exist_ok=True)
    names = sorted(os.listdir(checkpoints))
    saved = [int(name[:5]) for name in names if name[:5].isdigit()]
    if saved:
        model.optimizer.build(model.trainable_variables)
        path = os.path.join(checkpoints, f"{saved[-1]:05d}.weights.h5")
        model.load_weights(path)
    directory = os.path.join(folder, "samples")
    if not saved:  # killed before the first checkpoint: the run begins anew
        shutil.rmtree(directory, ignore_errors=True)
    posterior = mh.PosteriorSamples(
        every=1, directory=directory, max_samples=max_samples
    )
    fit(
        model,
        epochs=epochs,
        initial_epoch=saved[-1] if saved else 0,
        callbacks=[posterior, Checkpoint(checkpoints)],
    )


TASKS = {task.__name__: task for task in (go_on, backed_up, fit_forever)}


def fork(task, arguments):
    """The id of a new process that does a task."""
    process = os.fork()
    if process:
        return process
    try:
        TASKS[task](**arguments)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def main():
    """Answers each line of the standard input."""
    with suppress(ImportError):
        import tensorflow  # noqa: F401  (Keras imports it to save and load, if it can)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a task prints is no answer
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        if command == "start":
            answer = fork(*arguments)
        else:
            flags = os.WNOHANG if command == "poll" else 0
            process, status = os.waitpid(arguments[0], flags)
            answer = os.waitstatus_to_exitcode(status) if process else None
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
