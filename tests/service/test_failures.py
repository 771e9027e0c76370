"""Facts about what a user sees when something goes wrong."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from tests.service.conftest import Service, wait_until
from zmqdata import Dataset, distribute, register_dataset
from zmqdata.client.calls import status
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PipelineError,
    UnavailableError,
    UnimplementedError,
)


def no_sevens(x: Any) -> Any:
    if x == 7:
        raise KeyError("seven", 7)
    return x


def test_the_users_exception_arrives_with_its_place(make_service: Callable[..., Service]) -> None:
    """A failing map function raises a PipelineError with the node, the element, the
    remote traceback and the original cause.
    """
    service = make_service(workers=1)
    it = iter(service.read(Dataset.range(10).map(no_sevens)))
    found = [int(next(it)) for _ in range(7)]
    with pytest.raises(PipelineError) as caught:
        next(it)
    error = caught.value
    assert found == list(range(7))
    assert isinstance(error.__cause__, KeyError)
    assert error.__cause__.args == ("seven", 7)
    assert "no_sevens" in error.node
    assert "test_failures.py:" in error.node
    assert error.element == 7
    assert 'raise KeyError("seven", 7)' in str(error)
    assert "element 7" in str(error)


def test_iteration_goes_on_after_an_error(make_service: Callable[..., Service]) -> None:
    """After the error of an element the iterator returns the elements that follow, and
    then ends.
    """
    service = make_service(workers=1)
    it = iter(service.read(Dataset.range(10).map(no_sevens)))
    found = []
    for _ in range(10):
        try:
            found.append(int(next(it)))
        except PipelineError:
            found.append(-1)
    assert found == [0, 1, 2, 3, 4, 5, 6, -1, 8, 9]
    with pytest.raises(StopIteration):
        next(it)


def leave(x: Any) -> Any:
    if x == 3:
        sys.exit(1)
    return x


def interrupt(x: Any) -> Any:
    if x == 3:
        raise KeyboardInterrupt
    return x


@pytest.mark.parametrize("function", [leave, interrupt])
@pytest.mark.parametrize("kind", ["map", "filter", "prefetch"])
def test_what_would_end_a_process_is_an_error_of_its_element(
    make_service: Callable[..., Service], function: Callable[[Any], Any], kind: str
) -> None:
    """sys.exit() and similar calls in user code end neither the worker nor the
    iteration: they raise a PipelineError.
    """
    ds = Dataset.range(6)
    ds = ds.filter(lambda x: function(x) < 9) if kind == "filter" else ds.map(function)
    it = iter(make_service(workers=1).read(ds.prefetch(2) if kind == "prefetch" else ds))
    assert [int(next(it)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(PipelineError) as caught:
        next(it)
    assert "test_failures.py:" in caught.value.node
    assert [int(x) for x in it] == [4, 5]


def test_other_jobs_are_unaffected(service: Service) -> None:
    """A job whose function fails harms neither its workers nor other jobs."""
    with pytest.raises(PipelineError):
        list(service.read(Dataset.range(10).map(no_sevens)))
    assert sorted(int(x) for x in service.read(Dataset.range(10))) == list(range(10))


def test_what_cannot_travel_as_an_element_is_named(make_service: Callable[..., Service]) -> None:
    """An element with a leaf that cannot be sent raises an error in its place, which
    names the type.
    """
    service = make_service(workers=1)
    with pytest.raises(PipelineError, match=r"element\['a'\] is of type _thread.lock") as caught:
        list(service.read(Dataset.range(1).map(lambda x: {"a": threading.Lock()})))
    assert "test_failures.py:" in caught.value.node


def closed_socket() -> socket.socket:
    with socket.socket() as made:
        return made


@pytest.mark.parametrize(
    "make", [multiprocessing.Lock, lambda: (n for n in range(3)), closed_socket]
)
def test_what_cannot_be_sent_is_refused_at_the_call(make: Callable[[], Any]) -> None:
    """apply() raises a TypeError for a pipeline that holds a lock between
    processes, a generator or a socket, and names the path to it.
    """
    held = make()
    ds = Dataset.range(3).map(lambda x: (x, held))
    with pytest.raises(TypeError, match="held"):
        ds.apply(distribute("distributed_epoch", "tcp://127.0.0.1:1"))
    with pytest.raises(TypeError, match="held"):
        register_dataset("tcp://127.0.0.1:1", ds)


@pytest.mark.parametrize(
    ("service", "error", "text"),
    [
        (1, ValueError, "`service` must be a string"),
        ("", ValueError, "`service` must not be empty"),
        ("tcp://a://b", ValueError, "Malformed"),
        (
            "grp://host:1",
            NotFoundError,
            "No credentials factory has been registered for protocol grp",
        ),
    ],
)
def test_bad_service(service: Any, error: type[Exception], text: str) -> None:
    """The call refuses a service string that cannot work, with tf.data's message."""
    with pytest.raises(error, match=text):
        distribute("distributed_epoch", service)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"processing_mode": "invalid"}, ValueError, "distributed_epoch.*Got 'invalid'"),
        ({"job_name": ""}, ValueError, "`job_name` must not be empty"),
        ({"job_name": 3}, ValueError, "`job_name` must be a string"),
        ({"compression": "foo"}, ValueError, "Invalid `compression` argument"),
        ({"max_outstanding_requests": 0}, ValueError, "positive"),
        ({"data_transfer_protocol": "rdma"}, NotFoundError, "not available"),
        ({"dispatcher_timeout": 0}, ValueError, "positive"),
    ],
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], text: str) -> None:
    """The call of distribute refuses a wrong argument."""
    with pytest.raises(error, match=text):
        distribute(
            **{"processing_mode": "distributed_epoch", "service": "tcp://localhost:1", **options}
        )


def test_no_dispatcher() -> None:
    """A client without a dispatcher raises UnavailableError after
    dispatcher_timeout.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        target = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    ds = Dataset.range(3).apply(distribute("distributed_epoch", target, dispatcher_timeout=1))
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="dispatcher_timeout"):
        next(iter(ds))
    assert time.monotonic() - began >= 1


def test_a_final_error_is_raised_again(make_service: Callable[..., Service]) -> None:
    """A reader that has given up raises its error with each further call, also through
    the operations after distribute, as StopIteration would stand for a complete epoch.
    """
    service = make_service(workers=1)
    ds = service.read(Dataset.range(10**9), dispatcher_timeout=1)
    it = iter(ds.map(abs).prefetch(2))
    next(it)
    service.dispatcher.stop()
    with pytest.raises(UnavailableError, match=r"dispatcher_timeout|has stopped"):
        list(it)
    for _ in range(5):
        with pytest.raises(UnavailableError, match=r"dispatcher_timeout|has stopped"):
            next(it)


def test_no_such_dataset(service: Service) -> None:
    """A client that reads an unregistered id raises NotFoundError."""
    from zmqdata import from_dataset_id

    with pytest.raises(NotFoundError, match="Dataset id Unregistered not found"):
        from_dataset_id("distributed_epoch", service.target, "Unregistered")


def test_same_id_other_structure(service: Service) -> None:
    """The dispatcher refuses to register another structure under a known id."""
    register_dataset(service.target, Dataset.range(10), dataset_id="x")
    with pytest.raises(
        InvalidArgumentError, match="Datasets with the same ID should have the same structure"
    ):
        register_dataset(service.target, Dataset.range(10).batch(2), dataset_id="x")


def test_job_with_other_parameters(service: Service) -> None:
    """The dispatcher refuses other parameters for an existing named job; the message
    shows both sides.
    """
    it = iter(service.read(Dataset.range(10**9), "parallel_epochs", job_name="j"))
    next(it)
    with pytest.raises(
        InvalidArgumentError, match=r"existing job with diff.*mode: <OFF>; got <DYN"
    ):
        next(iter(service.read(Dataset.range(10**9), "distributed_epoch", job_name="j")))
    with pytest.raises(InvalidArgumentError, match=r"Existing dataset: "):
        next(iter(service.read(Dataset.range(10**8), "parallel_epochs", job_name="j")))
    it.close()


def test_distributed_input_cannot_be_split(service: Service) -> None:
    """DYNAMIC over an already distributed dataset raises UnimplementedError, which
    names its kind.
    """
    inner = service.read(Dataset.range(10))
    with pytest.raises(
        UnimplementedError, match="split providers for dataset of type DataServiceDataset"
    ):
        next(iter(service.read(inner)))


def test_no_files_match(service: Service, tmp_path: Any) -> None:
    """Files that vanish before the dispatcher lists them raise an error at the
    consumer, which does not hang.
    """
    (tmp_path / "a.txt").write_text("x")
    ds = Dataset.list_files(f"{tmp_path}/*.txt")
    (tmp_path / "a.txt").unlink()
    with pytest.raises(NotFoundError, match="list_files"):
        next(iter(service.read(ds)))


def test_who_comes_later_hears_that_no_files_match(service: Service, tmp_path: Any) -> None:
    """Every reader of a job that cannot be read gets the error, no matter when it
    joins.
    """
    (tmp_path / "a.txt").write_text("x")
    ds = service.read(Dataset.list_files(f"{tmp_path}/*.txt"), job_name="later")
    (tmp_path / "a.txt").unlink()
    said = []
    for reader in (
        ds,
        service.read(ds.node.original and Dataset(ds.node.original), job_name="later"),
    ):
        with pytest.raises(
            NotFoundError, match="list_files of job later: no file matches"
        ) as caught:
            next(iter(reader))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_other_python_is_named(service: Service) -> None:
    """The worker refuses a pipeline packed by another Python minor version; the message
    names both versions.
    """
    import msgspec

    ds = service.read(Dataset.range(3))
    registration = ds.node.registration
    registration.packed = msgspec.structs.replace(registration.packed, python="3.5")
    registration.description = msgspec.structs.replace(
        registration.description, digest=registration.packed.digest
    )
    with pytest.raises(FailedPreconditionError, match=r"3\.5"):
        list(ds)


def leaks() -> tuple[set[str], int]:
    """Return the names of the client threads, and the number of open files."""
    gc.collect()
    return {t.name for t in threading.enumerate() if "client" in t.name}, len(
        os.listdir("/proc/self/fd")
    )


def test_dropped_iterator_leaves_nothing(service: Service) -> None:
    """An iterator dropped halfway leaves no thread, no file and no task behind."""
    others = leaks()[
        0
    ]  # from tests whose dispatcher ended before its clients could send their last report
    for _ in service.read(Dataset.range(10)):
        break
    wait_until(lambda: leaks()[0] <= others, "client threads have ended")
    before = leaks()[1]
    for _ in range(5):
        for _ in service.read(Dataset.range(10**9)):
            break
    wait_until(lambda: leaks()[0] <= others, "client threads have ended")
    wait_until(
        lambda: leaks()[1] <= before + 2, f"files are closed: {before} before, {leaks()[1]} now"
    )
    wait_until(lambda: not status(service.target)["jobs"], "anonymous jobs are gone")
    wait_until(
        lambda: not any(worker.num_tasks() for worker in service.workers),
        "workers have dropped the tasks",
    )


def test_a_fault_of_ours_ends_the_iterator(service: Service) -> None:
    """A fault in the iterator's own thread raises an error that names it, because that
    thread may have failed to deliver elements.
    """
    iterator = iter(service.read(Dataset.counter()))
    next(iterator)
    iterator._shell.loop.post(lambda: {}["a fault"])
    with pytest.raises(DataServiceError, match=r"unforeseen error \(KeyError: 'a fault'\)"):
        for _ in iterator:
            pass


def test_several_threads_may_read_one_iterator(service: Service) -> None:
    """Threads that share an iterator together get each element once, and all of them
    see the end.
    """
    it = iter(service.read(Dataset.range(20_000).map(lambda x: x)))
    parts: list[list[int]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=lambda part=part: part.extend(map(int, it))) for part in parts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(x for part in parts for x in part) == list(range(20_000))


INTERRUPTED = """
    import signal, sys
    from zmqdata import Dataset, distribute

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    it = iter(Dataset.range(30_000).map(lambda x: x).apply(distribute("distributed_epoch", sys.argv[1])))
    found, interrupts, ended = [], 0, False
    while not ended:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            for x in it:
                found.append(int(x))
            signal.setitimer(signal.ITIMER_REAL, 0)
            ended = True
        except KeyboardInterrupt:
            interrupts += 1
    print(found == sorted(set(found)), 30_000 - len(found) <= interrupts, interrupts > 0)
"""


@pytest.mark.realprocess
def test_an_interrupt_loses_no_block(make_service: Callable[..., Service]) -> None:
    """A loop that catches Ctrl-C in next() and continues misses at most the element of
    that call, never a block.
    """
    service = make_service(workers=1)
    command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED), service.target]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert ended.stdout == "True True True\n", ended.stderr


CLIENT = """
    import sys
    from zmqdata import Dataset, distribute
    ds = Dataset.range(10**12).apply(distribute("distributed_epoch", sys.argv[1]))
    for number, x in enumerate(ds):
        if number == 100:
            print("reading", flush=True)
"""


def client(service: Service) -> subprocess.Popen[str]:
    """Start a training loop in a process of its own, and return it once it reads."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CLIENT), service.target],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    return process


@pytest.mark.realprocess
def test_ctrl_c_in_a_training_loop(service: Service) -> None:
    """Ctrl-C ends a training loop within seconds with KeyboardInterrupt, and its job
    with it.
    """
    process = client(service)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode in (1, 130, -signal.SIGINT)
    assert "KeyboardInterrupt" in errors
    wait_until(lambda: not status(service.target)["jobs"], "the job is gone")


@pytest.mark.realprocess
def test_killed_client_is_forgotten(make_service: Callable[..., Service]) -> None:
    """After the timeouts the dispatcher forgets a client killed with SIGKILL, and
    workers drop what they kept for it.
    """
    service = make_service(client_timeout_ms=1_000, job_gc_timeout_ms=500)
    process = client(service)
    process.kill()
    process.communicate()
    wait_until(lambda: not status(service.target)["jobs"], "the job is gone")
    wait_until(
        lambda: not any(worker.num_tasks() for worker in service.workers),
        "workers have dropped the tasks",
    )


def test_iterator_after_fork_says_so(service: Service) -> None:
    """An iterator used after fork raises a RuntimeError in the child that says what to
    do; a new iterator works.
    """
    ds = service.read(Dataset.range(1000))
    it = iter(ds)
    next(it)
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            next(it)
        except RuntimeError as error:
            os.write(writable, f"{'fork' in str(error)} {sum(1 for _ in ds)}".encode())
        except BaseException:
            os.write(writable, traceback.format_exc().encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as answer:
        assert answer.read() == "True 1000"
    os.waitpid(child, 0)
    assert len(list(it)) == 999


def test_a_task_that_cannot_be_begun_fails_its_job(
    make_service: Callable[..., Service], monkeypatch: Any
) -> None:
    """A worker reports an unforeseen error at the start of a task to the readers of the
    job.
    """

    def stumble(**given: Any) -> None:
        raise OverflowError("nobody has thought of this")

    monkeypatch.setattr("zmqdata.worker.server.TaskRunner", stumble)
    service = make_service(1)
    with pytest.raises(DataServiceError, match="nobody has thought of this"):
        next(iter(service.read(Dataset.range(10))))
