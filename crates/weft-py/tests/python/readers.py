"""Packages that read tables through the Arrow PyCapsule interface, with the same values as the table itself."""

import duckdb
import pandas
import polars
import pyarrow

import weft

SCENARIO = {
    "topology": {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 2},
    "workload": [{"kind": "permutation", "size": "100KB"}],
}

result = weft.sim.run(SCENARIO)
flows = result.flows

arrow = pyarrow.table(flows)
assert arrow.to_pylist() == flows.to_dicts(), arrow
# The buffer is the simulator's: two readers see one address.
first, second = (pyarrow.table(flows)["bytes"].chunks[0].buffers()[1] for _ in range(2))
assert first.address == second.address

frame = polars.DataFrame(flows)
assert isinstance(frame, polars.DataFrame) and frame.to_dicts() == flows.to_dicts()
assert frame["slowdown"].min() >= 1

data = pandas.DataFrame.from_arrow(flows)
assert data["slowdown"].tolist() == flows["slowdown"] and len(data) == 4

(found,) = duckdb.sql("select max(slowdown), count(*) from arrow").fetchall()
assert found == (max(flows["slowdown"]), 4), found
(direct,) = duckdb.from_arrow(flows).aggregate("sum(bytes)").fetchall()
assert direct == (sum(flows["bytes"]),), direct

missing = weft.sim.Table.from_columns({"a": [1, None], "b": [None, 0.5], "c": ["x", None]})
assert pyarrow.table(missing).to_pylist() == missing.to_dicts()
assert polars.read_parquet(missing.to_parquet())["b"].to_list() == [None, 0.5]
assert polars.DataFrame(result.links).height == len(result.links) > 0
print("read by pyarrow", pyarrow.__version__, "polars", polars.__version__, end=" ")
print("pandas", pandas.__version__, "duckdb", duckdb.__version__)
