"""Checks the built site: `python docs/tools/check_site.py site`.

Every public name has a place in the API pages, no page loads anything from elsewhere,
and no doctest has become a quotation.
"""

import pathlib
import re
import sys

import public_names

EXTERNAL = re.compile(
    r"<(?:script|img|iframe)[^>]+src=\"(?:https?:)?//[^\"]*\""
    r"|<link[^>]+rel=\"(?:stylesheet|preconnect|preload)\"[^>]+href=\"(?:https?:)?//"
    r"|<link[^>]+href=\"(?:https?:)?//[^>]+rel=\"(?:stylesheet|preconnect|preload)\""
)


def complaints(site):
    """A sentence for each thing that is wrong with the site in this folder."""
    pages = {path: path.read_text() for path in sorted(site.rglob("*.html"))}
    api = "".join(text for path, text in pages.items() if path.parent.name == "api")
    anchors = set(re.findall(r'id="(keras_mhmcmc[\w.]*)"', api))
    for name in public_names.public_names():
        if name not in anchors:
            yield f"{name} has no place in the API pages"
    for path, text in pages.items():
        where = path.relative_to(site)
        for found in EXTERNAL.findall(text):
            yield f"{where} loads from elsewhere: {found}"
        if "<blockquote>" in text and path.parent.name == "api":
            yield f"{where} has a quotation, which may be a doctest"


if __name__ == "__main__":
    found = list(complaints(pathlib.Path(sys.argv[1])))
    print(
        "\n".join(found) or "== the site is complete and loads nothing from elsewhere"
    )
    sys.exit(bool(found))
