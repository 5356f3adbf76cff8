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
