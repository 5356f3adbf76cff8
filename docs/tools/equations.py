"""Equations of the documentation site: TeX in a fence named `math` becomes SVG.

Every browser draws the same, also from the disk, without scripts and fonts.
"""

import html

import ziamath

SIZE = 19  # of the letters, in pixels; those of the text have 16

ziamath.config.svg2 = False  # plain paths: no names that two equations could share


def display(source, language, css_class, options, md, **kwargs):
    """The HTML of a fence, as `pymdownx.superfences` asks for it."""
    picture = ziamath.Latex(source, size=SIZE, color="currentColor").svg()
    label = html.escape(" ".join(source.split()))
    return f'<div class="{css_class}" role="img" aria-label="{label}">{picture}</div>'


def on_config(config):
    """Add the fence. MkDocs calls this hook once, with its configuration."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences.setdefault("custom_fences", []).append(
        {"name": "math", "class": "equation", "format": display}
    )
    return config
