"""Executes the notebooks that are named. Each must have no outputs in its file, and take less than 20 seconds."""

import sys
import time

import nbformat
from nbclient import NotebookClient

for file in sys.argv[1:]:
    notebook = nbformat.read(file, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None, f"{file}: clear its outputs"
    started = time.monotonic()
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    took = time.monotonic() - started
    # A busy machine may take longer; the notebooks are made for seconds.
    assert took < 60, f"{file}: {took:.0f} s"
    print(f"{file}: {took:.1f} s")
