"""Runs the notebook from top to bottom."""

import pathlib

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
NOTEBOOK = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "python" / "first_five_minutes.ipynb"


def test_the_notebook_runs_and_shows_batches_and_a_report(tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells), "commit it without outputs"
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    pages = [output["data"].get("text/html", "") for cell in cells for output in cell.outputs if output.output_type == "execute_result"]
    assert [page.count("<img") for page in pages if "Batch" in page[:200]] == [8, 8]
    assert any("<iframe" in page for page in pages)
