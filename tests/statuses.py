"""Made statuses of a dispatcher, for the tests of everything that shows one.

Only facts are made. Names, conditions and the order come from
``zmqdata.measures.status``, as for a real dispatcher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs, to_builtins

from zmqdata.measures.status import judged, named_readers, task_order, worker_order, worker_state
from zmqdata.messages import (
    EventStatus,
    JobStatus,
    MovedStatus,
    OperationStatus,
    ReaderStatus,
    ServiceStatus,
    SplitsStatus,
    TaskStatus,
    TotalsStatus,
    WorkerStatus,
)

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
CLIENT = "c0ffee0123456789"
WORKER = "{:016x}".format
DECODE = "map(decode) at train.py:31"
ADVICE = (
    f"{DECODE} takes 94 % of the workers' time; with 2 workers the loop waits 61 % of each step; 6 "
    "would feed it."
)


def operation(place: str, node: str, share: float, **fields: Any) -> OperationStatus:
    made = OperationStatus(
        place=place,
        depth=place.count(".") + 1 if place and not place.startswith("+") else 0,
        node=node,
        share=share,
        share_so_far=share / 2,
        seconds=round(10 * share, 3),
    )
    return structs.replace(made, **fields)


OPERATIONS = [
    operation("", "batch(8) at train.py:32", 0.02),
    operation("0", DECODE, 0.94, threads=4, processor_share=0.03),
    operation("0.0", "shuffle(100)", 0.03),
    operation("+packing", "packing elements", 0.01),
]


def reader(
    number: int | None = None, wait: float = 0.61, step: float = 12.0, **fields: Any
) -> ReaderStatus:
    made = ReaderStatus(
        client=CLIENT,
        run=f"process:{CLIENT}",
        process=f"node{number or 0}:{100 + (number or 0)}:{CLIENT[:8]}",
        how="begun",
        consumer=number,
        wait_share=wait,
        wait_ms=19.0,
        step_ms=step,
        elements_per_second=31.0,
        first_element_seconds=0.4,
        elements=1000,
        waited_seconds=9.0,
        buffered=2,
    )
    return structs.replace(made, **fields)


def job(
    name: str = "train",
    iteration: int = 1,
    readers: Sequence[ReaderStatus] | None = None,
    **fields: Any,
) -> JobStatus:
    """Return a job that two workers make elements for, and that one loop reads."""
    made = JobStatus(
        job=name,
        dataset_id="9643361000",
        processing_mode="distributed_epoch",
        iteration=iteration,
        clients=1,
        readers=named_readers([reader()] if readers is None else readers),
        workers=2,
        tasks=2,
        delivered=4321,
        splits=[SplitsStatus(handed_out=1000, count=20_000, unit="files")],
        verdict="INPUT-BOUND",
        advice=ADVICE,
        workers_needed=6,
        node=DECODE,
        node_share=0.94,
        wait_share=0.61,
        making_share=0.9,
        waiting_for_splits_share=0.02,
        link_busy_share=0.4,
        bytes_per_second=2_000_000,
        made_per_second=19.0,
        unit="batches",
        batch_rows=32,
        elements_per_second=31.0,
        rows_per_second=992.0,
        operations=OPERATIONS,
        measures=TotalsStatus(
            delivered=4321,
            making_seconds=10.1,
            waiting_for_splits_seconds=0.03,
            loop_waiting_seconds=3.7,
            loop_seconds=4.9,
            moved=[
                MovedStatus(transport="shm", codec="none", bytes=9_000_000, elements=34),
                MovedStatus(transport="tcp", codec="zstd", bytes=5_000_000, elements=60),
            ],
        ),
    )
    return structs.replace(made, **fields)


def address(number: int) -> str:
    return f"tcp://10.0.{number // 250}.{number % 250}:{40_000 + number}"


def task(number: int, iteration: int = 1, **fields: Any) -> TaskStatus:
    made = TaskStatus(
        task=4000 + number,
        iteration=iteration,
        worker=WORKER(number),
        address=address(number),
        doing="running",
        produced=50,
        delivered=47,
        making_share=0.9,
        elements_per_second=9.5,
        nodes=OPERATIONS,
    )
    return structs.replace(made, **fields)


def worker(number: int, **fields: Any) -> WorkerStatus:
    found: dict[str, Any] = {"silent_seconds": 0.2, **fields}
    connected, draining = found.pop("connected", True), found.pop("draining", False)
    state = worker_state(connected, draining, found["silent_seconds"])
    made = WorkerStatus(
        worker=WORKER(number),
        address=address(number),
        process=f"node{number}:{7000 + number}",
        state=state,
        python="3.12.1",
        tasks=1,
        elements_per_second=9.5,
        bytes_per_second=1_000_000,
        making_share=0.9,
        waiting_for_readers_share=0.08,
        waiting_for_splits_share=0.02,
        link_busy_share=0.4,
    )
    return structs.replace(made, **found)


def status(
    workers: int = 2, jobs: Sequence[JobStatus] | None = None, **fields: Any
) -> ServiceStatus:
    """Return the status of a dispatcher: ``workers`` host a task of job 1 each.

    Args:
        workers: their number.
        jobs: its jobs; None for one.
        fields: other fields; ``hosts`` and ``tasks`` replace workers and tasks.
    """
    tasks = fields.pop("tasks", [task(number) for number in range(workers)])
    hosts = fields.pop("hosts", [worker(number) for number in range(workers)])
    made = ServiceStatus(
        dispatcher="tcp://127.0.0.1:5050",
        config={"key_file": "/home/me/.config/secret-key", "insecure": False},
        workers=sorted(hosts, key=worker_order),
        jobs=judged([job()] if jobs is None else jobs, tasks),
        tasks=sorted(tasks, key=task_order),
        events=[
            EventStatus(time=1_700_000_000.0, text="worker tcp://10.0.0.0:5051 joined"),
            EventStatus(
                time=1_700_000_060.0,
                level="warning",
                text=f"job train: client {CLIENT} was silent; worker tcp://10.0.0.9:5051 died",
            ),
        ],
    )
    return structs.replace(made, **fields)


def answer(found: ServiceStatus) -> dict[str, Any]:
    """Return a status as ``zmqdata.client.calls.status`` does."""
    plain: dict[str, Any] = to_builtins(found)
    return plain


def every_condition() -> ServiceStatus:
    """Return a status with a job in each condition, and with one that was resumed."""
    verdicts = {
        "slow": ("INPUT-BOUND", ADVICE),
        "uneven": ("STRAGGLER", "The worker tcp://10.0.0.1:40001 is 3 times slower."),
        "far": ("LINK-BOUND", "A link is busy 83 % of the time. Send less."),
        "calm": ("COMPUTE-BOUND", "The input keeps up: the loop waits 1 % of its time."),
    }
    found = [
        job(name, number, verdict=word, advice=text, wait_share=0.1 * number, made_per_second=10.0)
        for number, (name, (word, text)) in enumerate(verdicts.items(), 1)
    ]
    found += [
        job("young", 5, verdict="", advice="", node="", readers=[reader(elements=0)]),
        job("broken", 6, failure="ValueError in map(decode): truncated file b.jpg"),
        job("kept", 7, save="/saved/images", clients=0, readers=[]),
        job("left", 8, clients=0, readers=[], repetition=2, unit="elements"),
        job("done", 9, finished=True),
        job("anonymous_1f", 10, origin="train.py:9, map(f)", readers=[reader(how="loaded")]),
        job("slow", 11, incarnation=2, repetition=0, readers=[reader(0), reader(1, 0.0, 40.0)]),
    ]
    tasks = [task(number, number) for number in range(1, 12)]
    tasks[0] = task(1, 1, state="stalled", doing="no progress for 75 s")
    hosts = [worker(0), worker(1, connected=False), worker(2, draining=True)]
    hosts.append(worker(3, silent_seconds=8.0))
    return status(0, found, tasks=tasks, hosts=hosts)
