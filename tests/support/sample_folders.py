"""Folders of samples, and what may happen to them."""

import json
from pathlib import Path

import keras_mhmcmc as mh
from tests.support.models import compiled
from tests.support.models import fit


def keep(folder, sampler, model=None, epochs=3, **options):
    """Runs a chain that keeps its samples in a folder; returns its model."""
    model = compiled(sampler, model)
    posterior = mh.PosteriorSamples(directory=folder, **options)
    fit(model, epochs=epochs, callbacks=[posterior])
    return model


def manifest_of(folder):
    return json.loads((Path(folder) / "manifest.json").read_text())


def edit(folder, change):
    """Replaces the manifest by what a function of it returns."""
    content = json.dumps(change(manifest_of(folder)))
    (Path(folder) / "manifest.json").write_text(content)


def as_first_written(manifest):
    """The manifest without the entries that came later, such as the run."""
    later = ("log_rate", "is_final")
    samples = [
        {name: value for name, value in entry.items() if name not in later}
        for entry in manifest["samples"]
    ]
    entries = {k: v for k, v in manifest.items() if k != "run"}
    return entries | {"samples": samples}
