"""The packet simulator: the transport as shipped, on any fabric.

    result = weft.sim.run("incast", seed=1)
    print(result.goodput.total_gbps)
    frame = polars.DataFrame(result.flows)

A scenario is a name that `weft.sim.scenarios()` lists, a file, or a dictionary of the same keys. The same scenario and
seed always give the same results. Tables implement the Arrow PyCapsule interface: pandas, polars, DuckDB and pyarrow
read them where they are, without a copy.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from . import _weft
from ._sweep import Failed, Sweep, sweep
from ._weft import Table

__all__ = [
    "Ack",
    "Comparison",
    "Config",
    "CongestionControl",
    "Failed",
    "Feedback",
    "PathPolicy",
    "Paths",
    "Record",
    "Result",
    "Scenario",
    "Sweep",
    "Table",
    "check_congestion",
    "check_policy",
    "compare",
    "run",
    "scenarios",
    "sweep",
]

Scenario = str | os.PathLike[str] | Mapping[str, Any]
"""A name, a file, or the keys of a scenario file."""


class Record(Mapping[str, Any]):
    """A part of a report: its values as attributes, or by key."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_values":
            raise AttributeError(name)
        try:
            return _record(self._values[name])
        except KeyError:
            known = ", ".join(self._values)
            raise AttributeError(f"no value {name!r} (known: {known})") from None

    def __getitem__(self, name: str) -> Any:
        return _record(self._values[name])

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __repr__(self) -> str:
        return f"Record({self._values!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Record, (self._values,)


def _record(value: Any) -> Any:
    if isinstance(value, dict):
        return Record(value)
    if isinstance(value, list):
        return [_record(item) for item in value]
    return value


@dataclass(frozen=True)
class Result:
    """The results of a run. The parts of the report are attributes (`result.network.events`); so are its tables."""

    report: Record
    """The whole report, as `weft sim run --json` prints it, without the flows."""
    scenario: str
    """The scenario with every default filled in, as TOML: it can be run again."""
    file: str
    """The file of the scenario, `built-in:…` if it is part of the package, or `<dict>`."""
    tables: Mapping[str, Table] = field(repr=False)
    """All tables by name."""

    def __getattr__(self, name: str) -> Any:
        # Pickle and copy look for methods before the fields are there.
        if name.startswith("__") or name in ("report", "tables"):
            raise AttributeError(name)
        return getattr(self.report, name)

    @property
    def flows(self) -> Table:
        """Every finished flow: workload, tag, source, destination, bytes, times in microseconds, slowdown."""
        return self.tables["flows"]

    @property
    def iterations(self) -> Table:
        """Every collective or round: start and time in microseconds, bus bandwidth in Gb/s."""
        return self.tables["iterations"]

    @property
    def links(self) -> Table:
        """The load of links by tier and direction, as a share of their rate."""
        return self._table("Links")

    @property
    def queues(self) -> Table:
        """The switches' queues by kind of port."""
        return self._table("Queues")

    @property
    def summary(self) -> Table:
        """Each workload's flows: completion times in microseconds, slowdowns."""
        return self._table("Flows")

    @property
    def sizes(self) -> Table:
        """Slowdown by flow size."""
        return self._table("Slowdown by size")

    @property
    def counters(self) -> Table:
        """The counters that are not zero."""
        return self._table("Counters")

    def _table(self, heading: str) -> Table:
        return self.tables.get(heading) or Table.from_columns({})

    def to_json(self) -> str:
        """Returns the report as JSON, the same text for the same run."""
        return json.dumps(_plain(self.report), indent=2)


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return {key: _plain(item) for key, item in value._values.items()}
    return value


@dataclass(frozen=True)
class Comparison:
    """The results of several balancers on the same arrivals."""

    report: Record
    """The whole comparison, as `weft sim compare --json` prints it."""
    file: str
    """The file of the scenario, `built-in:…` if it is part of the package, or `<dict>`."""
    rows: Table
    """One row for each balancer (and load, and topology): means over the seeds, half confidence intervals."""
    runs: Table
    """One row for each run."""
    flows: Table
    """One row for each flow, if they were kept."""


def scenarios() -> list[str]:
    """Returns the names of the scenarios that are part of the package."""
    return _weft.built_in_names("scenarios")


def run(
    scenario: Scenario,
    *,
    seed: int = 1,
    set: Mapping[str, Any] | None = None,
    flows: bool = True,
    policy: type[PathPolicy] | None = None,
    congestion: type[CongestionControl] | None = None,
) -> Result:
    """Runs a scenario. Other threads run meanwhile, and Ctrl-C ends it.

    `set` replaces values by dotted key: `{"transport.paths": 8, "workload.0.size": "1MB"}`. `flows=False` keeps no
    list of flows, for large runs. `policy` and `congestion` are classes of yours: see `PathPolicy` and
    `CongestionControl`.

    Raises `FileNotFoundError` for an unknown scenario, `ValueError` for an invalid one, and any exception of your
    classes.
    """
    source = _source(scenario, set)
    report, expanded, tables = _weft.run_scenario(source, seed, flows, policy, congestion)
    return Result(Record(json.loads(report)), expanded, source["file"], tables)


def compare(
    scenario: Scenario,
    *,
    balancers: Sequence[str] = (),
    loads: Sequence[float] = (),
    topologies: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: int | Iterable[int] = 1,
    set: Mapping[str, Any] | None = None,
    flows: bool = False,
    threads: int | None = None,
) -> Comparison:
    """Runs several balancers on the same arrivals, as `weft sim compare` does.

    Balancers are variants of the scenario (the default), path policies, switch models, congestion controls, or several
    joined by `+`; the first is the baseline. `seeds` is a number of seeds from 1 on, or the seeds. `threads` is the
    number of runs at a time; the default is one for each processor.
    """
    source = _source(scenario, set)
    axes: _weft.Axes = {
        "balancers": list(balancers),
        "loads": [float(load) for load in loads],
        "topologies": [(name, json.dumps(_values(table))) for name, table in (topologies or {}).items()],
        "seeds": list(range(1, seeds + 1)) if isinstance(seeds, int) else list(seeds),
    }
    report, tables = _weft.compare_balancers(source, axes, flows, threads)
    rows, runs = tables["rows"], tables["runs"]
    return Comparison(Record(json.loads(report)), source["file"], rows, runs, tables["flows"])


def _source(scenario: Scenario, changes: Mapping[str, Any] | None) -> _weft.Source:
    """Returns a scenario's text with its values replaced."""
    if isinstance(scenario, Mapping):
        file, table = "<dict>", _values(scenario)
    else:
        file, text = _weft.read_scenario(os.fspath(scenario))
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            # The simulator's error names the line.
            return {"text": text, "is_json": False, "file": file}
        if isinstance(table.get("scenario"), dict):
            # An experiment; its runs start from this.
            table = table["scenario"]
        elif not changes:
            return {"text": text, "is_json": False, "file": file}
    _replace(table, changes or {})
    return {"text": json.dumps(table), "is_json": True, "file": file}


def _values(table: Any) -> Any:
    """Returns a copy in which every mapping is a dictionary and every sequence a list."""
    if isinstance(table, Mapping):
        return {str(key): _values(value) for key, value in table.items()}
    if isinstance(table, os.PathLike):
        return os.fspath(table)
    if isinstance(table, Sequence) and not isinstance(table, str):
        return [_values(value) for value in table]
    return table


def _replace(table: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        *path, last = key.split(".")
        at: Any = table
        for part in path:
            if isinstance(at, list):
                at = at[_index(key, part, at)]
            elif isinstance(at, dict):
                at = at.setdefault(part, {})
            else:
                raise ValueError(f"set {key!r}: {part!r} is below a single value")
        if isinstance(at, list):
            at[_index(key, last, at)] = _values(value)
        elif isinstance(at, dict):
            at[last] = _values(value)
        else:
            raise ValueError(f"set {key!r}: {last!r} is below a single value")


def _index(key: str, part: str, items: list[Any]) -> int:
    if part.isdecimal() and int(part) < len(items):
        return int(part)
    raise ValueError(f"set {key!r}: {part!r} is no number from 0 to {len(items) - 1}")


class Config(Protocol):
    """The settings of a connection."""

    @property
    def mtu(self) -> int:
        """The payload of a full packet, bytes."""

    @property
    def paths(self) -> int:
        """The number of paths."""

    @property
    def line_rate_gbps(self) -> float:
        """The rate of the sender's port, Gb/s."""

    @property
    def base_rtt_us(self) -> float:
        """The round-trip time of an empty network, microseconds."""

    @property
    def bdp(self) -> int:
        """The bandwidth-delay product, bytes."""


class Paths(Protocol):
    """The paths of a connection at one moment, numbered from zero."""

    def __len__(self) -> int: ...
    def is_open(self, path: int, /) -> bool:
        """Returns `True` if the next packet may take the path."""

    def is_up(self, path: int, /) -> bool:
        """Returns `True` if the path carries packets, as far as known."""

    def rtt_us(self, path: int, /) -> float | None:
        """Returns the smoothed round-trip time, microseconds; `None` until measured."""

    def in_flight(self, path: int, /) -> int:
        """Returns the bytes sent on the path and not yet acknowledged or lost."""

    def window(self, path: int, /) -> int:
        """Returns the bytes that may be in flight on the path."""

    def open(self) -> list[int]:
        """Returns the open paths, lowest first."""

    def open_from(self, start: int, /) -> int | None:
        """Returns the first open path at or after `start`, wrapping around."""

    def random(self, below: int, /) -> int:
        """Returns a random number below `below`: the same for the same seed, unlike those of `random`."""


class Feedback(Protocol):
    """The network's answer to a packet."""

    @property
    def kind(self) -> Literal["acked", "lost", "timed-out", "trimmed"]: ...
    @property
    def marked(self) -> bool:
        """`True` if the packet's ACK reported a congestion mark."""

    @property
    def rtt_us(self) -> float | None:
        """The packet's round-trip time, microseconds, if it was measured."""


class PathPolicy:
    """A path policy in Python: one object for each connection. It is called for every packet, with the interpreter's
    lock: expect some ten thousand packets a second.

    `check_policy` runs the checks that all of Weft's policies pass. Use `paths.random` for random choices.
    """

    spread: ClassVar[Literal["all", "one"]] = "all"
    """`"one"` if the policy keeps to one path at a time."""
    compares_paths: ClassVar[bool] = False
    """`True` if the policy compares round-trip times, so that idle paths are probed."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def select(self, paths: Paths, now_us: float) -> int | None:
        """Returns the path of the next packet, which must be open; `None` to wait for feedback."""
        raise NotImplementedError

    def on_feedback(self, path: int, feedback: Feedback, paths: Paths, now_us: float) -> None:
        """Processes the feedback for a packet."""


class Ack(Protocol):
    """An ACK of new packets. Times are microseconds."""

    @property
    def now_us(self) -> float: ...
    @property
    def acked_bytes(self) -> int: ...
    @property
    def acked_packets(self) -> int: ...
    @property
    def marked_packets(self) -> int:
        """The number of those packets that carried a congestion mark."""

    @property
    def rtt_us(self) -> float | None: ...
    @property
    def fabric_delay_us(self) -> float | None:
        """The part of the round trip spent in the fabric."""

    @property
    def in_flight(self) -> int:
        """The bytes still in flight."""

    @property
    def hops(self) -> int: ...


class CongestionControl:
    """A congestion control in Python: one object for each connection, which sets `window` after each call.

    `check_congestion` runs the checks that all of Weft's controls pass.
    """

    window: float
    """The bytes that may be in flight: at least one packet, at most two bandwidth-delay products."""
    rate_gbps: float | None = None
    """The rate at which packets leave, Gb/s; `None` sends as fast as the window permits."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.window = float(config.bdp)

    def on_ack(self, ack: Ack) -> None:
        """Processes an ACK of new packets."""

    def on_loss(self, now_us: float) -> None:
        """Processes the loss of a packet."""

    def on_timeout(self, now_us: float) -> None:
        """Processes a packet's retransmission timeout."""


def check_policy(policy: type[PathPolicy]) -> None:
    """Raises an `AssertionError` that names the rule if a policy breaks one: it chooses open paths only, leaves a path
    that goes down at once, and sends when all are down."""
    _weft.check_policy(policy)


def check_congestion(congestion: type[CongestionControl]) -> None:
    """Raises an `AssertionError` that names the rule if a control breaks one: its window stays between one packet and two
    bandwidth-delay products, whatever it is called with."""
    _weft.check_congestion(congestion)
