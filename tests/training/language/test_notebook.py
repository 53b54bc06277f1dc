"""Run the notebook of the documentation, as a reader would: it trains an adapter of a pretrained model."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[3] / "docs" / "training.ipynb"


def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in cells)  # what is committed holds no results

    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()

    # The notebook itself asserts that the loss falls; its last cell loads the merged model.
    assert "parameters in" in "".join(o.get("text", "") for o in cells[-1].outputs)
