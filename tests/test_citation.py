"""`mh.citation`, and the project's files for people who cite or release it."""

import pathlib
import re

import pytest
import yaml

import keras_mhmcmc as mh
from tests.support.samplers import SAMPLERS

ROOT = pathlib.Path(__file__).parent.parent


def keys_of(text):
    return re.findall(r"^@\w+\{(\w+),$", text, flags=re.MULTILINE)


def is_balanced(text):
    return text.count("{") == text.count("}")


@pytest.mark.parametrize("name", SAMPLERS)
def test_each_sampler_has_its_papers(name):
    text = mh.citation(SAMPLERS[name].optimizer)
    package, *papers = keys_of(text)
    assert package == "keras_mhmcmc" and papers
    assert len(set(papers)) == len(papers)
    assert is_balanced(text)


def test_a_sampler_is_cited_like_its_class():
    sampler = mh.RSGLD(0.1, train_size=100, batch_size=10)
    assert mh.citation(sampler) == mh.citation(mh.RSGLD)
    assert "10.1080/01621459.2020.1782222" in mh.citation(sampler)


KERNELS = [
    (lambda: mh.kernels.barker(0.1), ["seita2017efficient"]),
    (lambda: mh.kernels.austerity(0.1), ["korattikara2014austerity"]),
    (
        lambda: mh.kernels.confidence(0.1, bounds=[1.0]),
        ["bardenet2014towards", "bardenet2017markov"],
    ),
    (
        lambda: mh.kernels.smh(mh.expansions.logistic_regression([[1], [2]], [0, 1])),
        ["cornish2019scalable"],
    ),
    (
        lambda: mh.kernels.tuna(0.1, bounds=[1.0]),
        ["zhang2020asymptotically", "yuan2024markov"],
    ),
    (
        lambda: mh.kernels.poisson(0.1, lower=[-1.0], upper=[0.0]),
        ["zhang2019poisson", "zhang2020asymptotically", "yuan2024markov"],
    ),
    (lambda: mh.kernels.amagold(0.1, steps_per_test=2), ["zhang2020amagold"]),
    (lambda: mh.kernels.hmc(), ["neal2011mcmc"]),
    (
        lambda: mh.kernels.mclmc(),
        ["robnik2023microcanonical", "robnik2023fluctuation"],
    ),
]


@pytest.mark.parametrize(("make", "papers"), KERNELS)
def test_kernels_that_are_no_optimizers_have_their_papers(make, papers):
    text = mh.citation(make())
    assert keys_of(text)[1:] == papers and is_balanced(text)
    assert text.count("@") == len(papers) + 1


def test_the_package_alone():
    assert keys_of(mh.citation()) == ["keras_mhmcmc"]
    assert f"{{{mh.__version__}}}" in mh.citation()


@pytest.mark.parametrize("wrong", ["RSGLD", dict, 3])
def test_only_samplers_have_papers(wrong):
    with pytest.raises(ValueError, match=r"Argument `sampler` must be .*Received"):
        mh.citation(wrong)


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
