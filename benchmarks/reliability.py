"""Measure failures: their detection, their effect on training loops, and the cost of
recovery.

    python benchmarks/reliability.py [--rounds 5] [--json FILE]

Everything runs in real processes on this machine, and processes are killed with
SIGKILL. Cables are cut between network namespaces, if these are permitted. The table is
that of ``docs/reliability.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zmqdata import Dataset, LocalCluster, distribute, register_dataset
from zmqdata import updates as u
from zmqdata.client.calls import status
from zmqdata.cluster.processes import ServerProcess
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.dispatcher.journalfile import JournalFile
from zmqdata.messages import JobParameters
from zmqdata.splits import Split
from zmqdata.testing.cluster import await_condition, descendants

START = 60.0
ELEMENTS = 400_000
SAMPLED_ELEMENTS = 4_000_000
OWN = os.sep + "zmqdata" + os.sep
GUARDS = {
    "reports": {
        "client/shell.py": {"_report_partly", "_report_taken"},
        "core/client/decider.py": {"_speak", "_heartbeat_answered"},
        "core/client/tasks.py": {"_collect_report", "next_report", "acknowledge"},
        "core/dispatcher/readers/jobs.py": {"heartbeat"},
    },
    "retention": {
        "core/worker/streams.py": {"_forget", "_count_reported"},
        "core/worker/coordinated.py": {"forget", "_forget", "_count_reported"},
        "core/worker/links.py": {"acknowledge"},
    },
    "states": {
        "worker/tasks/runner.py": {"_note"},
        "core/worker/decider.py": {"_state_taken"},
        "core/worker/splits.py": {"_started"},
        "core/worker/lineage.py": {"news_for"},
        "core/client/checkpoint.py": {"receive_lineage"},
        "core/dispatcher/tasks/lineage.py": {"commit"},
        "core/dispatcher/state/state.py": {"_take_state", "_let_go"},
    },
}
"""Functions that exist only so that nothing is lost, by purpose and module."""
IDLE = {
    "poll",
    "wait",
    "_run_once",
    "get",
    "select",
    "accept",
    "_wait_for_tstate_lock",
    "join",
    "_sample",
    "wait_for",
}
"""Functions in which a thread only waits."""


def stream(
    cluster: LocalCluster, count: int, name: str, work: int = 0, **options: Any
) -> Iterator[Any]:
    def made(x: Any) -> Any:
        total = 0
        for number in range(work):
            total += number
        return np.full(128, x)

    dataset = Dataset.range(count).map(made)
    return iter(dataset.apply(distribute("distributed_epoch", cluster.target, name, **options)))


def measure_death(number: int, ordered: bool = False) -> dict[str, float]:
    """Kill a worker of two while a loop reads as fast as it can; ``ordered`` selects a
    job with a promised order.
    """
    with LocalCluster(2) as cluster:
        found: Counter[int] = Counter()
        astray = 0
        gaps: list[tuple[float, float]] = []
        killed: list[float] = []
        noticed: list[float] = []
        elements = stream(cluster, ELEMENTS, f"death-{number}", work=200, deterministic=ordered)
        victim = cluster.workers[number % 2]
        assert isinstance(victim, ServerProcess)

        def kill() -> None:
            before = len(status(cluster.target)["workers"])
            victim.kill()
            killed.append(time.perf_counter())
            await_condition(lambda: len(status(cluster.target)["workers"]) < before, START)
            noticed.append(time.perf_counter())

        killer = threading.Thread(target=kill)
        last = time.perf_counter()
        for place, element in enumerate(elements):
            now = time.perf_counter()
            if now - last > 0.02:
                gaps.append((last, now - last))
            last = now
            # With num_tasks tasks, task i has every num_tasks-th split, and elements
            # are taken from the tasks in turn: so they come in order.
            astray += int(element[0]) != place
            found[int(element[0])] += 1
            if len(found) == ELEMENTS // 4 and not killer.ident:
                killer.start()
        killer.join()
    behind = [gap for at, gap in gaps if at + gap >= killed[0]]
    where = " where an order is promised" if ordered else ""
    measured = {
        f"seconds until a killed worker is noticed{where}": noticed[0] - killed[0],
        f"longest pause of the training loop{where}, in seconds": max(behind, default=0.0),
        f"elements lost{where}": float(ELEMENTS - len(found)),
        f"elements that came twice{where}": float(found.total() - len(found)),
    }
    return measured | ({"elements out of place": float(astray)} if ordered else {})


def measure_frozen(number: int) -> dict[str, float]:
    """Stop a worker (SIGSTOP): it stays connected and sends nothing, as behind a cut
    cable.
    """
    with LocalCluster(2) as cluster:
        elements = stream(cluster, ELEMENTS, f"frozen-{number}", work=200)
        next(elements)
        victim = cluster.workers[0]
        assert isinstance(victim, ServerProcess)
        pids = [victim.pid, *descendants(victim.pid)]
        before = len(status(cluster.target)["workers"])
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        since = time.perf_counter()
        try:
            await_condition(lambda: len(status(cluster.target)["workers"]) < before, START)
            return {"seconds until a silent worker is given up": time.perf_counter() - since}
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def measure_cut(number: int) -> dict[str, float]:
    """Cut a worker's connection: both directions, only its messages, or only messages
    to it, by round.

    Machines are network namespaces here; the result is empty if these are not
    permitted.
    """
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.netns.lan import Lan, NotPermittedError

    with tempfile.TemporaryDirectory() as folder:
        try:
            lan = Lan(["dispatcher", "worker"], Path(folder))
        except NotPermittedError as refusal:
            print(f"cables cannot be cut here: {refusal}", file=sys.stderr)
            return {}
        with contextlib.closing(lan):
            service = lan.serve("dispatcher", "dispatcher", "--port", "5050")
            lan.serve("worker", "worker", "--dispatcher", service)
            [log, _] = lan.logs
            await_condition(lambda: "joined" in log.read_text(), START)
            way, cut = [("pulled", lan.pull_cable), ("mute", lan.mute), ("deaf", lan.deafen)][
                number % 3
            ]
            since = time.perf_counter()
            cut("worker")
            await_condition(lambda: "is lost" in log.read_text(), START)
            return {
                f"seconds until a worker is given up whose cable is {way}": time.perf_counter()
                - since
            }


def hosted_tasks(dataset: str, tasks: int) -> Iterator[u.Update]:
    """Yield the updates of a job with ``tasks`` tasks on a hundred workers."""
    yield u.BeginIncarnationUpdate(1, JobParameters("job", dataset, "DYNAMIC"))
    yield u.CreateIterationUpdate(2000, 1, 0, 7)
    for one in range(100):
        yield u.AddWorkerUpdate(f"worker-{one}", f"tcp://10.0.0.{one}:1", (), "3.11")
    for task in range(10**6, 10**6 + tasks):
        yield u.CreateTaskUpdate(task, 2000, task)
        yield u.HostTaskUpdate(task, 1, f"worker-{task % 100}")
        yield u.AssignSplitsUpdate(task, 0, Split(0, task * 100, task * 100 + 100))
        yield u.DeliverUpdate(task, ((0, 50),))


def measure_restart(tasks: int = 10_000) -> dict[str, float]:
    """Restart a dispatcher with ``tasks`` tasks in its work folder, half of whose
    elements were delivered.
    """
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess("zmqdata.dispatcher", [f"--work-dir={folder}"])
        with contextlib.closing(server):
            server.launch()
            server.await_ready(START)
            dataset = register_dataset(server.address, Dataset.range(10**9))
            server.kill()
            file = JournalFile(Path(folder))
            state = DispatcherState()
            file.replay(state.apply)
            for update in hosted_tasks(dataset, tasks):
                state.apply(update)
            file.begin(snapshot(state))
            file.close()
            since = time.perf_counter()
            server.launch()
            server.await_ready(START)
            ready = time.perf_counter() - since
            assert len(status(server.address)["tasks"]) == tasks
            return {f"seconds until a dispatcher with {tasks} tasks answers again": ready}


class Sampler(threading.Thread):
    """Samples every few milliseconds what each thread of this process does."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.counts: Counter[str] = Counter()
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.002):
            for thread, frame in sys._current_frames().items():
                if thread != self.ident:
                    self._sample(frame)

    def _sample(self, frame: Any) -> None:
        if frame.f_code.co_name in IDLE:
            return
        names = set()
        while frame is not None:
            names.add((frame.f_code.co_filename.rpartition(OWN)[2], frame.f_code.co_name))
            frame = frame.f_back
        self.counts["all"] += 1
        for guard, modules in GUARDS.items():
            if any(name in modules.get(module, ()) for module, name in names):
                self.counts[guard] += 1


def measure_guards() -> dict[str, float]:
    """Measure the share of all work that is done so that nothing is lost, with
    dispatcher, two workers and client in this process.
    """
    sampler = Sampler()
    with LocalCluster(2, in_process=True) as cluster:
        elements = stream(cluster, SAMPLED_ELEMENTS, "guards", data_transfer_protocol="tcp")
        next(elements)
        sampler.start()
        for _ in elements:
            pass
        sampler.ended.set()
    total = max(1, sampler.counts["all"])
    found = {
        f"share of the work spent on {guard}, in percent": 100 * sampler.counts[guard] / total
        for guard in GUARDS
    }
    return found | {"samples": float(total)}


def repeated(measure: Callable[[int], dict[str, float]], rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        for name, value in measure(number).items():
            found.setdefault(name, []).append(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = repeated(measure_death, arguments.rounds)
    found |= repeated(lambda number: measure_death(number, ordered=True), arguments.rounds)
    found |= repeated(measure_frozen, 1)
    found |= repeated(measure_cut, max(3, arguments.rounds))
    found |= repeated(lambda number: measure_restart(), arguments.rounds)
    found |= repeated(lambda number: measure_guards(), 1)
    print("| what | median | worst | rounds |\n|---|---|---|---|")
    for name, values in found.items():
        print(f"| {name} | {statistics.median(values):.2f} | {max(values):.2f} | {len(values)} |")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
