"""The papers' figures, reproduced.

    figure, = weft.experiment.run("stellar-fig9")
    print(figure.verdict)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import _weft
from ._weft import Table
from .sim import _source

__all__ = ["Figure", "list", "run"]


@dataclass(frozen=True)
class Figure:
    """An experiment's results."""

    name: str
    title: str
    source: str
    """The paper, section and figure."""
    paper: str
    """The paper's statement."""
    verdict: str
    """The comparison of Weft's result with the paper's."""
    here: str
    """Weft's result in a sentence."""
    rows: Table
    """One row for each point: the values of the axes, and each measure."""
    claims: Table
    """One row for each claim, and whether it holds."""


def list() -> Table:
    """Returns one row for each experiment: those of the folder `experiments` here or above, else those that are part of
    the package. `simulated` is `no` for those that a bench of Weft's repository measures."""
    return _weft.list_experiments()


def run(name: str, *, set: Mapping[str, Any] | None = None, threads: int | None = None) -> "tuple[Figure, ...]":
    """Runs the experiments that `name` selects: one, the parts of a figure, or all of a paper.

    `set` replaces values of the scenario by dotted key; the claims may then not hold. Ctrl-C ends the runs.
    """
    scenario = None if not set else _source(name, set)["text"]
    return tuple(
        _figure(json.loads(text), rows, claims)
        for text, rows, claims in _weft.run_experiment(name, scenario, threads)
    )


def _figure(values: dict[str, Any], rows: Table, claims: Table) -> Figure:
    named = {key: values[key] for key in ("name", "title", "source", "paper", "verdict", "here")}
    return Figure(**named, rows=rows, claims=claims)
