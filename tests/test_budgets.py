"""How many lines each room of the package may have, and which files may be short.

The numbers are a ratchet. A room that grows past its number fails. So does a room that
is far below it: then write its new number here, so that it stays there.
"""

import ast

import pytest

from tests.support.package_files import PACKAGE
from tests.support.package_files import files
from tests.support.package_files import parse

SLACK = 60  # lines that a room may be below its number
LONGEST, SHORTEST = 700, 60  # of a file
TOTAL = 25_000  # lines of the package that the goals add up to, at most

# Room -> files and folders, lines that are allowed now, and the goal.
GROUND = "__init__ _version _types _names _validate _data _inputs _serialize _warn"
GROUND += " _layer_calls _table _stored_model _laws priors schedules losses"
BESIDE = "kernels proposals partition expansions bounds targets barker_chain"
ROOMS = {
    "ground": (GROUND, 2870, 1600),
    "_backend": ("_backend", 3433, 2700),
    "samplers": ("samplers", 9718, 7000),
    "beside the samplers": (BESIDE, 760, 250),
    "fit": ("fit", 2629, 1500),
    "sampling": ("sampling", 2550, 1200),
    "posterior": ("posterior", 1641, 1000),
    "ensemble": ("ensemble bayesian sklearn", 4400, 2200),
    "parallel": ("parallel", 1083, 850),
    "evaluation": ("evaluation diagnostics tuning", 3500, 3000),
    "extras": ("adversarial baselines plots datasets", 5048, 3700),
}

# Files below 60 lines but `__init__.py`, and why they stand alone.
SHORT = {
    "_layer_calls.py": "two rooms use it, and neither may import the other",
    "_names.py": "the ground imports nothing but the ground",
    "_types.py": "the types that all files share",
    "_version.py": "tools that build the package read it",
    "_warn.py": "every room warns by it",
    "_backend/data_sizes.py": "the only file that knows data sets of three frameworks",
    "bayesian/progress.py": "callbacks, the line of progress and Ctrl-C in one place",
    "bayesian/report.py": "the table that the call prints",
    "expansions.py": "the public names of `mh.expansions`",
    "proposals.py": "the public names of `mh.proposals`",
    "samplers/named.py": "Keras finds samplers by name through it",
    "samplers/parts/importance.py": "draws and kept samples weigh in the same way",
}

# Files that ask for a concrete sampler of another file, and why they may.
ASKING = {
    "barker_chain.py": {"Barker"},  # this model and that optimizer are one method
    "plots/runs.py": {"SpikeSlabOptimizer"},  # the figure of what it alone has
    "tuning.py": {"AMAGOLD"},  # refused, with the remedy
}


def lines_of(path):
    return len((PACKAGE / path).read_text().splitlines())


LINES = {path: lines_of(path) for path in files()}


def room_of(path, rooms=ROOMS):
    """The names of the rooms that a file belongs to."""
    head = path.split("/")[0].removesuffix(".py")
    return [name for name, (heads, *_) in rooms.items() if head in heads.split()]


def fault(count, allowed):
    """What is wrong with the number of lines of a room; "" if nothing is."""
    if count > allowed:
        return f"{count - allowed} lines too many: delete some before you add others"
    if count < allowed - SLACK:
        return f"{count} lines: write {count + SLACK // 2} as the allowed number"
    return ""


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_stays_within_its_lines(room):
    _, allowed, goal = ROOMS[room]
    count = sum(LINES[path] for path in LINES if room in room_of(path))
    assert fault(count, allowed) == "", f"{room}, whose goal is {goal}"


def test_the_ratchet_holds_on_both_sides():
    faults = [fault(count, 1000) for count in (939, 940, 1000, 1001)]
    assert [bool(text) for text in faults] == [True, False, False, True]


def test_every_file_belongs_to_one_room_and_the_goals_to_one_package():
    assert {path: room_of(path) for path in LINES if len(room_of(path)) != 1} == {}
    assert sum(goal for *_, goal in ROOMS.values()) <= TOTAL


def test_no_file_is_too_long():
    assert {path: n for path, n in LINES.items() if n > LONGEST} == {}


def test_a_short_file_has_a_reason():
    short = {path for path, n in LINES.items() if n < SHORTEST}
    assert {path for path in short if not path.endswith("__init__.py")} == set(SHORT)


def classes_of(tree):
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def asked_for(tree):
    """The names of the classes that `isinstance` gets."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    asks = (x for x in calls if getattr(x.func, "id", "") == "isinstance")
    parts = (part for x in asks for part in ast.walk(x.args[1]))
    return {getattr(x, "attr", getattr(x, "id", "")) for x in parts}


def test_no_other_file_asks_for_a_concrete_sampler():
    samplers = {
        path: classes_of(parse(path))
        for path in LINES
        if path.startswith("samplers/") and path.count("/") == 1 and "base" not in path
    }
    found = {}
    for path in LINES:
        tree = parse(path)
        others = set().union(*(samplers[other] for other in samplers if other != path))
        names = asked_for(tree) & (others - classes_of(tree))
        if names:
            found[path] = names
    assert found == ASKING


def test_a_question_for_a_class_is_seen():
    tree = ast.parse("isinstance(x, amagold.AMAGOLD | Other); issubclass(x, Third)")
    assert asked_for(tree) >= {"AMAGOLD", "Other"} and "Third" not in asked_for(tree)
