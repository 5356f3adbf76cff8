"""Names that tell variables apart."""

from collections.abc import Iterable


def distinct(names: Iterable[str]) -> list[str]:
    """Return the names, with a number at repetitions, such as kernel#2."""
    found: dict[str, None] = {}
    for name in names:
        unique, repetition = name, 1
        while unique in found:
            repetition += 1
            unique = f"{name}#{repetition}"
        found[unique] = None
    return list(found)
