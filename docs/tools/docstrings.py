"""Shows the examples of docstrings as code: read by mkdocstrings, see mkdocs.yml.

Under an `Example:` the lines of a doctest stand by themselves; Markdown would take
`>>>` for a quotation. They are put between fences, with a heading that griffe leaves
alone.
"""

import griffe

# Methods that Keras or other modules of the package call, and no user.
INTERNAL = (
    "__deepcopy__",
    "build_for_training",
    "check_member",
    "checked_inputs",
    "choose",
    "compile_from_config",
    "examples_seen",
    "from_config",
    "get_config",
    "group_of_each",
    "log_names",
)


class Examples(griffe.Extension):
    """Fences the doctests of every docstring, and hides internal methods."""

    def on_object(self, *, obj, loader, **kwargs):
        if obj.docstring:
            obj.docstring.value = fence_doctests(obj.docstring.value)

    def on_class(self, *, cls, loader, **kwargs):
        for name in INTERNAL:
            cls.members.pop(name, None)


def fence_doctests(text):
    """The text with each block of lines that begins with `>>>` between fences."""
    lines, inside = [], False
    for line in text.split("\n"):
        starts = line.lstrip().startswith(">>>")
        if starts and not inside:
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append(f"{indent}```")
            inside = False
        lines.append(line)
    if inside:
        lines.append(f"{indent}```")
    return "\n".join(lines).replace("\nExample:\n", "\n**Example**\n")
