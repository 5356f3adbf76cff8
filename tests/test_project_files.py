"""The project's files for people who cite or release it."""

import pathlib
import re

import pytest
import yaml

import keras_mhmcmc as mh

ROOT = pathlib.Path(__file__).parent.parent


def test_the_citation_file_has_the_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == mh.__version__
    assert cited["license"] == "Apache-2.0"


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=str)
def test_the_forge_can_read_its_files(path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)
    assert "secrets." not in path.read_text()


def test_what_a_wheel_must_run_runs():
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    *_, step = jobs["wheel"]["steps"]
    code = re.search(r"<<'CODE'\n(.*?)\nCODE", step["run"], flags=re.DOTALL)
    exec(compile(code.group(1), "workflow", "exec"), {})
