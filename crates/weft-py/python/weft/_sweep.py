"""Sweeps: many runs over a grid, on this machine or on a cluster."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from . import _weft
from ._weft import Table

if TYPE_CHECKING:
    from .sim import Scenario

Point = Mapping[str, Any]
"""Scenario keys and their values; the key `seed` is the run's seed."""


class Handle(Protocol):
    """A run in progress, such as a `concurrent.futures.Future` or a job of submitit."""

    def result(self) -> Any: ...


@dataclass(frozen=True)
class Failed:
    """A point whose run failed."""

    point: Point
    error: BaseException


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep."""

    table: Table
    """One row for each finished run: the point's values, the seed, and the run's metrics."""
    failed: tuple[Failed, ...]
    """The points whose runs failed; call `sweep` again with the same cache to retry them alone."""
    hash: str
    """A digest of the table: equal wherever the runs were made."""
    ran: int
    """The number of runs that were made; the others were in the cache."""


@dataclass(frozen=True)
class _Job:
    """A run as a worker gets it: text and numbers only."""

    source: _weft.Source
    seed: int
    metrics: tuple[str, ...]


METRICS = (
    "finished",
    "simulated_us",
    "goodput.total_gbps",
    "network.events",
    "network.marked",
    "transport.retransmit_share",
    "transport.out_of_order_share",
)
"""The default metrics: dotted keys of the report. Means and 99th percentiles of all flows come with them."""


def sweep(
    scenario: Scenario,
    grid: Mapping[str, Sequence[Any]] | Iterable[Point],
    *,
    executor: Any = None,
    cache: str | os.PathLike[str] | None = None,
    metrics: Sequence[str] = METRICS,
    retries: int = 1,
    progress: Callable[[int, int], None] | None = None,
    parquet: str | os.PathLike[str] | None = None,
) -> Sweep:
    """Runs a scenario at every point of a grid, and returns a table with a row for each run.

    `grid` maps scenario keys, and `seed`, to lists of values, of which all combinations are run; or it lists the points.
    `executor` makes the runs: `None` on this thread; a `concurrent.futures.Executor` (a process pool; Dask's
    `client.get_executor()`); the module `ray`; an executor of submitit; or a function that takes a function and its
    argument and returns an object with `result()`.

    `cache` is a folder: a run that is there is not made again, and each is written as soon as it ends, so that a sweep
    that was interrupted or killed goes on where it was. A run is known by the scenario's text, the seed and the
    version of Weft. A failed point is retried `retries` times, then listed in `failed`. `progress` is called with the
    numbers of finished and of all runs. `parquet` names a file for the table.
    """
    from .sim import _source

    points = _points(grid)
    jobs = []
    for point in points:
        changes = {key: value for key, value in point.items() if key != "seed"}
        jobs.append(_Job(_source(scenario, changes), int(point.get("seed", 1)), tuple(metrics)))
    store = _Cache(cache)
    rows: dict[int, dict[str, Any]] = {}
    for index, job in enumerate(jobs):
        row = store.get(job)
        if row is not None:
            rows[index] = row
    left = [index for index in range(len(jobs)) if index not in rows]
    ran = len(left)
    submit = _submitter(executor)
    errors: dict[int, BaseException] = {}

    def report() -> None:
        if progress is not None:
            progress(len(rows), len(jobs))

    report()
    for _ in range(retries + 1):
        errors = {}
        for index, outcome in _outcomes(submit, [(index, jobs[index]) for index in left]):
            if isinstance(outcome, BaseException):
                errors[index] = outcome
                continue
            rows[index] = outcome
            store.put(jobs[index], outcome)
            report()
        left = sorted(errors)
        if not left:
            break
    table = _table([(points[index], jobs[index], rows[index]) for index in sorted(rows)])
    if parquet is not None:
        _write(Path(parquet), table.to_parquet())
    failed = tuple(Failed(points[index], errors[index]) for index in left)
    digest = hashlib.sha256(table.to_csv().encode()).hexdigest()
    return Sweep(table, failed, digest, ran - len(left))


def _points(grid: Mapping[str, Sequence[Any]] | Iterable[Point]) -> list[Point]:
    if isinstance(grid, Mapping):
        for key, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise ValueError(f"grid[{key!r}] is {values!r}, expected a list of values")
        return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]
    return [dict(point) for point in grid]


def _perform(job: _Job) -> dict[str, Any]:
    """Makes a run and returns its metrics. Workers call it."""
    from .sim import Record

    report, _, tables = _weft.run_scenario(job.source, job.seed, True, None, None)
    values = Record(json.loads(report))
    row: dict[str, Any] = {}
    for key in job.metrics:
        value: Any = values
        for part in key.split("."):
            value = value[int(part)] if isinstance(value, Sequence) else value.get(part)
            if value is None:
                break
        row[key] = int(value) if isinstance(value, bool) else value
    flows = tables["flows"]
    times = [end - start for start, end in zip(flows["start_us"], flows["acknowledged_us"])]
    row["flows"] = len(times)
    for name, numbers in (("fct_us", times), ("slowdown", flows["slowdown"])):
        ranked = sorted(numbers)
        row[f"{name}_mean"] = sum(ranked) / len(ranked) if ranked else None
        row[f"{name}_p99"] = ranked[-(-len(ranked) * 99 // 100) - 1] if ranked else None
    return row


def _table(runs: list[tuple[Point, _Job, dict[str, Any]]]) -> Table:
    columns: dict[str, list[Any]] = {}
    for point, _, _ in runs:
        for key in point:
            columns.setdefault(key, [])
    columns.setdefault("seed", [])
    for _, _, row in runs:
        for key in row:
            columns.setdefault(key, [])
    for point, job, row in runs:
        values = {**point, "seed": job.seed, **row}
        for key, column in columns.items():
            column.append(_cell(values.get(key)))
    return Table.from_columns({key: _alike(column) for key, column in columns.items()})


def _cell(value: Any) -> Any:
    """Returns a value that a column can hold."""
    if isinstance(value, bool):
        return int(value)
    if value is None or isinstance(value, (int, float, str)):
        return value
    return json.dumps(value, default=str)


def _alike(column: list[Any]) -> list[Any]:
    """Returns the column as texts if some of its values are."""
    if any(isinstance(value, str) for value in column):
        return [None if value is None else str(value) for value in column]
    return column


def _outcomes(
    submit: Callable[[_Job], Handle], jobs: list[tuple[int, _Job]]
) -> Iterator[tuple[int, dict[str, Any] | BaseException]]:
    """Submits all jobs and yields their outcomes as they end."""
    waiting: list[tuple[int, Handle]] = []
    try:
        for index, job in jobs:
            try:
                handle: Handle = submit(job)
            except Exception as error:
                # A pool whose worker was killed accepts nothing more.
                handle = _Now(error)
            if isinstance(handle, _Now):
                yield index, handle.outcome
            else:
                waiting.append((index, handle))
        while waiting:
            ended = [item for item in waiting if _is_done(item[1])]
            if not ended:
                # Handles of all kinds have `done`, not all can wake this thread.
                time.sleep(0.02)
                continue
            numbers = {index for index, _ in ended}
            waiting = [item for item in waiting if item[0] not in numbers]
            for index, handle in ended:
                try:
                    yield index, handle.result()
                except Exception as error:
                    yield index, error
    finally:
        # After an interrupt, runs that have not begun must not begin.
        for _, handle in waiting:
            cancel = getattr(handle, "cancel", None)
            if cancel is not None:
                cancel()


def _is_done(handle: Handle) -> bool:
    done = getattr(handle, "done", None)
    return True if done is None else bool(done())


@dataclass(frozen=True)
class _Now:
    """A run that was made at once."""

    outcome: dict[str, Any] | BaseException

    def result(self) -> dict[str, Any]:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def _submitter(executor: Any) -> Callable[[_Job], Handle]:
    """Returns the function that submits a job to any executor."""
    if executor is None:

        def at_once(job: _Job) -> _Now:
            try:
                return _Now(_perform(job))
            except Exception as error:
                return _Now(error)

        return at_once
    if getattr(executor, "__name__", None) == "ray":
        remote = executor.remote(_perform)
        return lambda job: remote.remote(job).future()
    submit = getattr(executor, "submit", executor)
    return lambda job: submit(_perform, job)


class _Cache:
    """The rows of runs that were made, a file each."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)

    def _file(self, job: _Job) -> Path | None:
        if self._folder is None:
            return None
        key = [_weft.VERSION, job.source["text"], job.seed, job.metrics]
        return self._folder / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()}.json"

    def get(self, job: _Job) -> dict[str, Any] | None:
        file = self._file(job)
        if file is None or not file.exists():
            return None
        row: dict[str, Any] = json.loads(file.read_text())
        return row

    def put(self, job: _Job, row: dict[str, Any]) -> None:
        file = self._file(job)
        if file is not None:
            _write(file, json.dumps(row).encode())


def _write(file: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(file)
