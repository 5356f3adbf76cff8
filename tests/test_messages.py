"""Errors and warnings say what happened, and the remedy: two sentences at most."""

import ast
import functools
import re

import pytest

from keras_mhmcmc.fit import watch
from tests.support.package_files import files
from tests.support.package_files import parse


def named(tree):
    """The strings that a file names, such as a remedy of several messages."""
    pairs = [(x.targets[0], x.value) for x in tree.body if isinstance(x, ast.Assign)]
    return {x.id: value for x, value in pairs if isinstance(x, ast.Name)}


def text(node, names):
    """The words of an expression; {} stands for what only a run knows."""
    if isinstance(node, ast.FormattedValue):
        node = names.get(ast.unparse(node.value).split(".")[-1])
    if isinstance(node, ast.JoinedStr):
        return "".join(text(part, names) for part in node.values)
    if isinstance(node, ast.BinOp):
        return text(node.left, names) + text(node.right, names)
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


def sentences(message):
    """How many stand before the values that a message shows at its end."""
    told = re.split(r"(?:Received|Now): ", message)[0].strip()
    return len(re.split(r"(?<=[.!?])\s+(?=[^a-z])", told))


def strings(tree):
    """The expressions that are strings, but docstrings and the table of `fit`."""
    for node in ast.walk(tree):
        for part in ast.iter_child_nodes(node):
            is_string = isinstance(part, ast.Constant | ast.JoinedStr | ast.BinOp)
            if is_string and not isinstance(node, ast.Expr | ast.JoinedStr | ast.BinOp):
                yield part


@functools.cache
def names_of_all():
    return {name: x for path in files() for name, x in named(parse(path)).items()}


@pytest.mark.parametrize("path", files())
def test_a_message_has_at_most_two_sentences(path):
    tree = parse(path)
    names = names_of_all() | named(tree)
    told = [text(x, names) for x in strings(tree) if x is not names.get("_TABLE")]
    assert [message for message in told if sentences(message) > 2] == []


@pytest.mark.parametrize("row", watch.ROWS)
def test_a_warning_of_fit_has_at_most_two_and_the_remedy(row):
    assert sentences(watch.ROWS[row].text) <= 3
