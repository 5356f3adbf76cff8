"""Each test runs on one backend at a landing, and on all of them within a few days."""

import json
import zlib

import pytest

from tests import turns

SOME = [("torch",), ("jax",), ("jax", "tensorflow")]


@pytest.mark.parametrize("mostly", SOME)
def test_a_test_runs_on_one_backend_a_day_and_on_each_in_time(mostly):
    days = len(turns.wheel(mostly))
    for number in range(20):
        on = {turns.backend_of("a.py", number, day, mostly) for day in range(5 * days)}
        assert on == set(turns.BACKENDS)


def test_pytorch_has_most_of_what_compiles_elsewhere():
    on = [turns.backend_of("a.py", number, 3) for number in range(1070)]
    assert [on.count(name) for name in turns.BACKENDS] == [10, 10, 1050]


def test_the_backends_that_compile_share_what_pytorch_runs_too():
    days = [[turns.compiled_on("a.py", k, d) for k in range(12)] for d in (4, 5, 6)]
    for three in zip(*days, strict=True):
        assert set(three) == {*turns.COMPILED, turns.RESTS}
    assert days[0].count("jax") == days[0].count("tensorflow") == 4
    assert turns.compiled_on("a.py", 0, "all") is None


def test_a_heavy_test_comes_back_on_another_backend():
    for number in range(8):
        name = f"a.py::test[{number}]"
        weeks = range(3 * turns.HEAVY_DAYS)
        days = [day for day in weeks if not turns.rests(name, day)]
        assert len(days) == 3 and not turns.rests(name, "all")
        on = {turns.compiled_on("a.py", number, day) for day in days}
        assert on == {*turns.COMPILED, turns.RESTS}


def test_the_list_of_heavy_tests_is_made_from_what_ran(tmp_path, monkeypatch):
    monkeypatch.setattr(turns, "HEAVY", tmp_path / "heavy.json")
    turns.HEAVY.write_text('{"a::old": 9.0, "a::gone": 9.0, "a::quick": 9.0}')
    for name in turns.BACKENDS:
        states = dict.fromkeys(["a::old", "a::slow", "a::quick"], "ran")
        (tmp_path / f"{name}.json").write_text(json.dumps(states))
        ran = {"a::slow": turns.LEAST[name], "a::quick": 0.1}
        (tmp_path / f"{name}.seconds").write_text(json.dumps(ran))
    assert turns.heavy_tests(tmp_path) == {"a::old": 9.0, "a::slow": 3.0}


def runs(backend_of, tests):
    """What each backend says of tests, of which `backend_of` gives the turns."""
    return {
        name: {t: "ran" if name in backend_of(t) else "turn" for t in tests}
        for name in turns.BACKENDS
    }


def test_a_rule_that_gives_some_tests_to_no_backend_is_found():
    tests = [f"a.py::test_{number}" for number in range(40)]

    def checksum(test):
        """Turns by a checksum, where a mark without backends gave most to none."""
        turn = zlib.crc32(test.encode()) % 8
        return {0: ("jax",), 1: ("tensorflow",)}.get(turn, ())

    assert len(turns.missing(runs(checksum, tests))) > 20
    number = {test: k for k, test in enumerate(tests)}
    by_number = runs(lambda t: [turns.backend_of("a.py", number[t], 0)], tests)
    assert turns.missing(by_number) == []


def test_a_test_that_is_skipped_where_it_has_its_turn_is_found():
    states = {"jax": {"t": "turn"}, "tensorflow": {"t": "skipped"}, "torch": {}}
    assert turns.missing(states) == ["t"]
    assert turns.missing(states | {"torch": {"t": "ran"}}) == []


def test_pytorch_alone_does_not_do_for_what_is_compiled_too():
    states = {"jax": {"t": "shared"}, "tensorflow": {"t": "shared"}}
    states["torch"] = {"t": "ran"}
    assert turns.missing(states) == ["t"]
    assert turns.missing(states | {"jax": {"t": "ran"}}) == []
