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
    """The manifest without the entries that came later: checksums and the run."""
    later = ("sha256", "log_rate", "is_final")
    samples = [
        {name: value for name, value in entry.items() if name not in later}
        for entry in manifest["samples"]
    ]
    entries = {k: v for k, v in manifest.items() if k not in ("run", "base_sha256")}
    return entries | {"samples": samples}


def flip_a_bit(path, value):
    """Changes a file where it holds the bytes `value`: it can still be read."""
    content = bytearray(path.read_bytes())
    place = content.find(value)
    assert place >= 0
    content[place] ^= 1
    path.write_bytes(content)
