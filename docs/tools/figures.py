"""Draws the figures of docs/plots.md again: `python docs/tools/figures.py`.

It runs the blocks of the page in a new folder, or only those that save the figures that
follow the command. A figure that a block saves under the name of a file in docs/images
takes the place of this file.
"""

import os
import pathlib
import re
import shutil
import sys
import tempfile

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["savefig.dpi"] = 160

ROOT = pathlib.Path(__file__).parent.parent
IMAGES = ROOT / "images"
OTHERS = ("robustness.png",)  # `make demo` draws it


def main(names):
    """Run the blocks that save these figures, or all if none is named."""
    text = (ROOT / "plots.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        if names and not any(name in block for name in names):
            continue
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            exec(compile(block, "plots.md", "exec"), {"__name__": "figures"})
            os.chdir(before)
            for path in sorted(pathlib.Path(folder).glob("*.png")):
                if (IMAGES / path.name).exists() and path.name not in OTHERS:
                    shutil.copy(path, IMAGES / path.name)
                    print(path.name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
