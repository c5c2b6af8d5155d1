"""The simulator: runs, tables, algorithms in Python, sweeps."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import weft

SMALL: dict[str, Any] = {
    "name": "small",
    "topology": {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 2},
    "transport": {"paths": 8},
    "workload": [{"kind": "permutation", "size": "100KB"}],
}

LONG = {**SMALL, "workload": [{"kind": "permutation", "size": "4GB"}], "run": {"limit": "1000s"}}


class Runs(unittest.TestCase):
    def test_a_run_is_the_same_each_time_and_another_with_another_seed(self) -> None:
        one, again, other = (weft.sim.run(SMALL, seed=seed) for seed in (1, 1, 2))
        self.assertEqual(one, again)
        self.assertEqual(one.to_json(), again.to_json())
        self.assertNotEqual(one.flows, other.flows)
        self.assertTrue(one.finished)
        self.assertEqual(one.report.seed, 1)
        self.assertEqual(one.workloads[0].flows.finished, 4)

    def test_a_scenario_is_a_name_a_file_or_the_printed_scenario_of_a_run(self) -> None:
        self.assertIn("incast", weft.sim.scenarios())
        short = {"run.limit": "50us"}
        by_name = weft.sim.run("link-failure", set=short, flows=False)
        self.assertTrue(by_name.file.endswith("scenarios/link-failure.toml"), by_name.file)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "mine.toml"
            file.write_text(by_name.scenario)
            self.assertEqual(weft.sim.run(file, flows=False).to_json(), by_name.to_json())
            there = os.getcwd()
            os.chdir(folder)
            try:
                anywhere = weft.sim.run("link-failure", set=short, flows=False)
            finally:
                os.chdir(there)
        self.assertEqual(anywhere.file, "built-in:scenarios/link-failure.toml")
        self.assertEqual(anywhere.to_json(), by_name.to_json())

    def test_values_are_replaced_by_key(self) -> None:
        result = weft.sim.run(SMALL, set={"transport.paths": 4, "workload.0.size": "1KB"})
        self.assertEqual(set(result.flows["bytes"]), {1000})
        self.assertIn("paths = 4", result.scenario)
        with self.assertRaisesRegex(ValueError, "'1' is no number from 0 to 0"):
            weft.sim.run(SMALL, set={"workload.1.size": "1KB"})

    def test_errors_name_the_key_the_line_and_the_nearest_name(self) -> None:
        with self.assertRaisesRegex(ValueError, 'unknown key "pats".*did you mean "paths"'):
            weft.sim.run(SMALL, set={"transport.pats": 4})
        with self.assertRaisesRegex(FileNotFoundError, 'did you mean "incast"'):
            weft.sim.run("incats")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "wrong.toml"
            file.write_text("topology = { kind = 'leaf-spine' }\nnmae = 'x'\n")
            with self.assertRaisesRegex(ValueError, "wrong.toml:2"):
                weft.sim.run(file)

    def test_results_survive_pickling(self) -> None:
        result = weft.sim.run(SMALL)
        copy = pickle.loads(pickle.dumps(result))
        self.assertEqual(copy, result)
        self.assertEqual(copy.flows, result.flows)
        self.assertEqual(copy.network.events, result.network.events)

    def test_tables_have_columns_rows_and_files(self) -> None:
        result = weft.sim.run(SMALL)
        flows = result.flows
        self.assertEqual(len(flows), 4)
        self.assertEqual(flows.columns[:4], ["workload", "tag", "source", "destination"])
        rows = flows.to_dicts()
        self.assertEqual([row["slowdown"] for row in rows], flows["slowdown"])
        self.assertEqual(len(flows.to_csv().splitlines()), 5)
        self.assertEqual(flows.to_parquet()[:4], b"PAR1")
        self.assertIn("leaf-up", result.links["tier"])
        self.assertEqual(len(result.iterations), 0)
        with self.assertRaisesRegex(KeyError, "slowdown"):
            flows["slowdwon"]
        mixed = weft.sim.Table.from_columns({"a": [1, None], "b": ["x", None], "c": [0.5, 2]})
        self.assertEqual(mixed.to_dicts(), [{"a": 1, "b": "x", "c": 0.5}, {"a": None, "b": None, "c": 2.0}])
        self.assertEqual(pickle.loads(pickle.dumps(mixed)), mixed)
        with self.assertRaisesRegex(ValueError, "'b' has 1 values|\"b\" has 1 values"):
            weft.sim.Table.from_columns({"a": [1, 2], "b": [1]})

    def test_other_threads_run_meanwhile(self) -> None:
        counted = 0
        stop = threading.Event()

        def count() -> None:
            nonlocal counted
            while not stop.wait(0.001):
                counted += 1

        thread = threading.Thread(target=count)
        thread.start()
        before = time.monotonic()
        weft.sim.run(SMALL, set={"workload.0.size": "20MB"})
        took = time.monotonic() - before
        stop.set()
        thread.join()
        self.assertGreater(counted, took / 0.02, "the interpreter's lock was held")

    def test_an_interrupt_ends_a_run_and_a_comparison(self) -> None:
        for call in (
            "weft.sim.run(LONG)",
            "weft.sim.compare(LONG, balancers=['ecmp', 'oblivious'])",
            "weft.sim.sweep(LONG, {'seed': [1, 2]})",
        ):
            # A machine that is busy with other work may delay some; one prompt end shows how long it takes by itself.
            took = [self.interrupted(call)]
            while took[-1] > 0.1 and len(took) < 5:
                took.append(self.interrupted(call))
            self.assertLessEqual(took[-1], 0.1, call)

    def interrupted(self, call: str) -> float:
        """Returns the seconds from a signal to a call that is running until it raises KeyboardInterrupt."""
        program = f"""import time, weft
from test_sim import LONG
try:
    {call}
except KeyboardInterrupt:
    print(time.monotonic())
"""
        child = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parent, stdout=subprocess.PIPE)
        # The call runs once it has its thread.
        threads, deadline = Path(f"/proc/{child.pid}/task"), time.monotonic() + 60
        while len(list(threads.iterdir())) < 2 and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 0, call)
        return float(output) - sent

    def test_balancers_are_compared_on_the_same_arrivals(self) -> None:
        found = weft.sim.compare(SMALL, balancers=["ecmp", "oblivious"], seeds=2, flows=True)
        self.assertEqual(found.rows["balancer"], ["ecmp", "oblivious"])
        self.assertEqual(found.runs["seed"], [1, 2, 1, 2])
        self.assertEqual(len(found.flows), 16)
        self.assertEqual(found.report.seeds, [1, 2])
        with self.assertRaisesRegex(ValueError, "no balancer \"ecpm\""):
            weft.sim.compare(SMALL, balancers=["ecpm"])
        with self.assertRaisesRegex(ValueError, "no variant"):
            weft.sim.compare(SMALL)

    def test_experiments_are_listed_and_run(self) -> None:
        listed = weft.experiment.list()
        self.assertIn("stellar-fig9", listed["name"])
        with self.assertRaisesRegex(ValueError, "no experiment"):
            weft.experiment.run("stellar-fig99x")


class Rotate(weft.sim.PathPolicy):
    """Every open path in turn."""

    used: ClassVar[set[int]] = set()

    def __init__(self, config: weft.sim.Config) -> None:
        super().__init__(config)
        self.next = 0

    def select(self, paths: weft.sim.Paths, now_us: float) -> int | None:
        path = paths.open_from(self.next)
        if path is not None:
            self.next = path + 1
            self.used.add(path)
        return path


class Chance(weft.sim.PathPolicy):
    """A random open path."""

    def select(self, paths: weft.sim.Paths, now_us: float) -> int | None:
        open_paths = paths.open()
        return open_paths[paths.random(len(open_paths))] if open_paths else None


class Closed(weft.sim.PathPolicy):
    """Path 0, open or not."""

    def select(self, paths: weft.sim.Paths, now_us: float) -> int | None:
        return 0


class Silent(weft.sim.PathPolicy):
    """Never sends."""

    def select(self, paths: weft.sim.Paths, now_us: float) -> int | None:
        return None


class Broken(Rotate):
    """Raises an exception after 100 answers."""

    def on_feedback(
        self, path: int, feedback: weft.sim.Feedback, paths: weft.sim.Paths, now_us: float
    ) -> None:
        if now_us > 12:
            raise ZeroDivisionError(f"path {path} at {now_us}")


class Half(weft.sim.CongestionControl):
    """Half of a bandwidth-delay product while packets are marked, else a whole one."""

    def on_ack(self, ack: weft.sim.Ack) -> None:
        share = 0.5 if ack.marked_packets else 1.0
        self.window = max(self.config.bdp * share, self.config.mtu)


class Greedy(weft.sim.CongestionControl):
    """More with every ACK."""

    def on_ack(self, ack: weft.sim.Ack) -> None:
        self.window += 100 * ack.acked_bytes


class Algorithms(unittest.TestCase):
    def test_a_policy_in_python_carries_the_flows(self) -> None:
        for policy in (Rotate, Chance):
            one = weft.sim.run(SMALL, policy=policy)
            self.assertTrue(one.finished)
            self.assertEqual(one, weft.sim.run(SMALL, policy=policy), "the same seed")
        self.assertEqual(Rotate.used, set(range(8)))

    def test_policies_pass_the_checks_of_all_policies_or_the_rule_is_named(self) -> None:
        weft.sim.check_policy(Rotate)
        weft.sim.check_policy(Chance)
        with self.assertRaisesRegex(ValueError, "select returned path 0, which is not open"):
            weft.sim.check_policy(Closed)
        with self.assertRaisesRegex(AssertionError, "returns no path though one is open"):
            weft.sim.check_policy(Silent)

    def test_an_exception_of_a_policy_ends_the_run_with_its_traceback(self) -> None:
        try:
            weft.sim.run(LONG, policy=Broken)
        except ZeroDivisionError as error:
            # assertRaises drops the traceback.
            lines = traceback.format_exception(error)
            self.assertTrue(any("on_feedback" in line for line in lines), lines)
        else:
            self.fail("the exception is lost")
        with self.assertRaisesRegex(TypeError, "has no select"):
            weft.sim.run(SMALL, policy=dict)  # type: ignore[arg-type]

    def test_a_control_in_python_limits_the_window(self) -> None:
        result = weft.sim.run(SMALL, congestion=Half)
        self.assertTrue(result.finished)
        weft.sim.check_congestion(Half)
        with self.assertRaisesRegex(AssertionError, "may be in flight"):
            weft.sim.check_congestion(Greedy)

        class Tiny(weft.sim.CongestionControl):
            window = 1.0

            def __init__(self, config: weft.sim.Config) -> None:
                pass

        with self.assertRaisesRegex(ValueError, "window is 1 bytes"):
            weft.sim.run(SMALL, congestion=Tiny)


GRID: dict[str, list[Any]] = {"transport.policy": ["single", "oblivious"], "seed": [1, 2]}


class Counting(Executor):
    """Runs at once, and fails where it is told to."""

    def __init__(self, failing: int = 0) -> None:
        self.calls = 0
        self.failing = failing

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        self.calls += 1
        future: Future[Any] = Future()
        if self.calls <= self.failing:
            future.set_exception(OSError("no worker"))
        else:
            future.set_result(function(*arguments, **named))
        return future


class Sweeps(unittest.TestCase):
    def test_a_grid_gives_the_same_table_on_this_thread_and_in_a_pool(self) -> None:
        here = weft.sim.sweep(SMALL, GRID)
        self.assertEqual(here.table["transport.policy"], ["single", "single", "oblivious", "oblivious"])
        self.assertEqual(here.table["seed"], [1, 2, 1, 2])
        self.assertEqual((here.ran, here.failed), (4, ()))
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            self.assertEqual(weft.sim.sweep(SMALL, GRID, executor=pool).hash, here.hash)
        points: list[dict[str, Any]] = [{"seed": 1, "transport.policy": "single"}, {"seed": 2}]
        listed = weft.sim.sweep(SMALL, points)
        self.assertEqual(listed.table["transport.policy"], ["single", None])

    def test_runs_that_are_in_the_cache_are_not_made_again(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            first = weft.sim.sweep(SMALL, {"seed": [1, 2]}, cache=folder)
            seen: list[tuple[int, int]] = []
            more = weft.sim.sweep(
                SMALL,
                {"seed": [1, 2, 3]},
                cache=folder,
                progress=lambda done, all: seen.append((done, all)),
                parquet=Path(folder) / "all.parquet",
            )
            self.assertEqual((first.ran, more.ran), (2, 1))
            self.assertEqual(seen, [(2, 3), (3, 3)])
            self.assertEqual((Path(folder) / "all.parquet").read_bytes(), more.table.to_parquet())
            self.assertEqual(more.hash, weft.sim.sweep(SMALL, {"seed": [1, 2, 3]}).hash)
            other = weft.sim.sweep(SMALL, {"seed": [1]}, cache=folder, metrics=["finished"])
            self.assertEqual(other.ran, 1, "other metrics are another row")

    def test_failed_points_are_retried_then_listed(self) -> None:
        executor = Counting(failing=1)
        sweep = weft.sim.sweep(SMALL, {"seed": [1, 2]}, executor=executor)
        self.assertEqual((len(sweep.table), sweep.failed, executor.calls), (2, (), 3))
        sweep = weft.sim.sweep(SMALL, {"transport.paths": [4, 0]}, executor=executor)
        self.assertEqual(sweep.table["transport.paths"], [4])
        (failed,) = sweep.failed
        self.assertEqual(failed.point, {"transport.paths": 0})
        self.assertRegex(str(failed.error), "paths is 0")

    def test_a_function_that_submits_is_an_executor(self) -> None:
        def submit(function: Any, argument: Any) -> Future[Any]:
            return Counting().submit(function, argument)

        sweep = weft.sim.sweep(SMALL, {"seed": [1]}, executor=submit)
        self.assertEqual(len(sweep.table), 1)
        with self.assertRaisesRegex(ValueError, "expected a list of values"):
            weft.sim.sweep(SMALL, {"seed": 1})  # type: ignore[arg-type]

    def test_a_killed_sweep_goes_on_where_it_was(self) -> None:
        grid = "{'seed': list(range(1, 400))}"
        with tempfile.TemporaryDirectory() as folder:
            program = f"import weft\nfrom test_sim import SMALL\nweft.sim.sweep(SMALL, {grid}, cache={folder!r})"
            child = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parent)
            while len(list(Path(folder).glob("*.json"))) < 3:
                self.assertIsNone(child.poll(), "it ended before it was killed")
                time.sleep(0.005)
            child.kill()
            child.wait()
            made = len(list(Path(folder).glob("*.json")))
            rest = weft.sim.sweep(SMALL, {"seed": list(range(1, made + 3))}, cache=folder)
            self.assertEqual((rest.ran, len(rest.table)), (2, made + 2))


if __name__ == "__main__":
    unittest.main()
