"""Makes the notebooks and their pages from `examples/notebooks/*.py`.

    python docs/tools/notebooks.py              # all of them
    python docs/tools/notebooks.py regression   # one

Each file is a script with cells, which jupytext reads. It runs in a new folder, and
`examples/notebooks/NAME.ipynb` keeps what it prints and draws. `docs/notebooks/NAME.md`
is the page of the site. `DATA_DIR` names the folder of the data sets. The link to Colab
appears once pyproject.toml names the repository.
"""

import argparse
import base64
import os
import pathlib
import sys
import tempfile
import tomllib

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = pathlib.Path(__file__).parent.parent.parent
SOURCES = ROOT / "examples" / "notebooks"
PAGES = ROOT / "docs" / "notebooks"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
COLAB = "https://colab.research.google.com/github/{}/blob/main/examples/notebooks/{}"


def unexecuted(path):
    """The notebook of a script: the same in every run."""
    notebook = jupytext.read(path)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        cell.metadata.clear()
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    link = colab_link(path.stem)
    if link:
        notebook.cells[0].source += f"\n\n[Run it in Colab]({link})"
    return notebook


def colab_link(name):
    """The address that opens a notebook, or None while the repository has none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    address = project.get("urls", {}).get("Repository", "")
    owner = address.removeprefix("https://github.com/").strip("/")
    return COLAB.format(owner, f"{name}.ipynb") if owner else None


def execute(notebook):
    """Run all cells in a new folder, and keep what a reader should see."""
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=3600, resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = joined(map(shown, filter(is_shown, cell.outputs)))
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL})


def is_shown(part):
    """Whether an output is for the reader. Messages of frameworks are not."""
    return part.output_type != "stream" or part.name == "stdout"


def joined(parts):
    """The outputs, with printed text that follows printed text in one."""
    found = []
    for part in parts:
        if found and part.output_type == found[-1].output_type == "stream":
            found[-1].text += part.text
        else:
            found.append(part)
    return found


def shown(part):
    """An output without what differs from run to run."""
    if part.output_type in ("execute_result", "display_data"):
        if "image/png" in part.data:
            part.data["text/plain"] = "<Figure>"
        part.metadata.clear()
    return part


def page(notebook, name):
    """The page of a notebook as Markdown, and its pictures by file name."""
    lines = [f"<!-- Made by docs/tools/notebooks.py from {name}.py: do not edit. -->"]
    pictures = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            lines += ["", cell.source]
            continue
        lines += ["", "```python", cell.source, "```"]
        for part in cell.outputs:
            if part.output_type == "stream":
                lines += ["", "```text", part.text.rstrip(), "```"]
            elif "image/png" in part.data:
                file = f"{name}-{len(pictures)}.png"
                pictures[file] = base64.b64decode(part.data["image/png"])
                lines += ["", f"![What the cell above draws]({file})"]
            else:
                lines += ["", "```text", part.data["text/plain"], "```"]
    lines += ["", f"As a notebook: `examples/notebooks/{name}.ipynb`.", ""]
    return "\n".join(lines), pictures


def main(argv=None):
    """Make the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="of the scripts, without .py")
    args = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    PAGES.mkdir(exist_ok=True)
    for path in sorted(SOURCES.glob("*.py")):
        if args.names and path.stem not in args.names:
            continue
        print(path.stem, flush=True)
        notebook = unexecuted(path)
        execute(notebook)
        nbformat.write(notebook, path.with_suffix(".ipynb"))
        text, pictures = page(notebook, path.stem)
        (PAGES / f"{path.stem}.md").write_text(text, encoding="utf-8")
        for file, content in pictures.items():
            (PAGES / file).write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
