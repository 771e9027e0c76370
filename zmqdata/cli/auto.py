"""``zmqdata auto``: a whole service in one step of Slurm, with a dispatcher, trainers
and workers, which end together.

Slurm signals every process of a task, the command of a trainer and the processes of a
worker included. Nothing is forwarded here. A trainer decides what SIGTERM means to it,
workers drain, and the dispatcher serves until the last trainer has ended.

The dispatcher runs in process 0, without a keeper: a dispatcher that has died ends the
step. A job that is requeued is another run of its program, so a journal is of no use to
it, and a checkpoint of the program has what it needs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from zmqdata.cli.membership import EVERY_ADDRESS, Coordinator, StepMember
from zmqdata.cli.options import (
    add_settings,
    chosen_settings,
    command_parser,
    complain,
    guarded,
)
from zmqdata.cli.step import EXAMPLE, StepProcess, rank_variables, step_process
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.endpoints import FILE_SCHEME
from zmqdata.config.logs import LogSettings
from zmqdata.config.worker import WorkerConfig
from zmqdata.worker.processes.lifetime import (
    SIGNALLED,
    StopSignals,
    die_with_parent,
    exit_within,
)
from zmqdata.worker.processes.options import ProcessSettings
from zmqdata.worker.processes.supervisor import NO_DISPATCHER

WAKING = (signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
"""Signals that must not end this process. Slurm sends those of users
(``srun --signal=USR1@60``) to their trainer and to this process.
"""
PATIENCE = 2.5
"""Seconds for which a process may take to end with the step before it is killed."""


@dataclass(frozen=True)
class ServerCommands:
    """The commands of servers, which this one runs in the processes of a step."""

    serve_command: Callable[
        [str, argparse.Namespace, Callable[[StopSignals], int], StopSignals], int
    ]
    serve_dispatcher: Callable[[DispatcherConfig, Coordinator], int]
    supervise: Callable[[str, argparse.Namespace, StopSignals], int]


def auto_main(arguments: Sequence[str], program: str, servers: ServerCommands) -> int:
    """Run a process of a step until the step ends; return the exit code."""
    given = list(arguments)
    cut = given.index("--") if "--" in given else len(given)
    chosen, command = auto_arguments(program).parse_args(given[:cut]), given[cut + 1 :]
    try:
        process = checked_process(chosen, command)
    except ValueError as error:
        return complain(program, str(error))
    stop = StopSignals(waking=WAKING, owned=process.role != "worker")

    def serve(stop: StopSignals) -> int:
        try:
            if process.role == "dispatcher":
                return coordinate(process, chosen, servers)
            with contextlib.closing(StepMember(process, stop)) as member:
                if process.role == "trainer":
                    return train(process, chosen, command, member, stop)
                return work(partial(servers.supervise, program, chosen), member, stop)
        except InterruptedError:
            return SIGNALLED + signal.SIGTERM
        except EOFError:
            return complain(
                program,
                "Process 0 of the step, which is the dispatcher, has ended before the trainers. "
                "Its own lines, or those of Slurm, say why. The step cannot go on without it, and "
                "ends.",
                NO_DISPATCHER,
            )
        finally:
            # Slurm repeats SIGTERM, and Python restores the default at its end.
            for kind in (*WAKING[1:], signal.SIGTERM, signal.SIGINT):
                signal.signal(kind, signal.SIG_IGN)

    return servers.serve_command(program, chosen, serve, stop)


def auto_arguments(program: str) -> argparse.ArgumentParser:
    """Return the parser of the options: the number of trainers, and options of
    workers.
    """
    parser = command_parser(
        program,
        "Runs a whole service in one step of Slurm, in which every task runs this command: "
        f"{EXAMPLE}. Task 0 is the dispatcher, the next ones are trainers, which run the command "
        "behind --, and the others are workers, which have the options below. A trainer sees the "
        "variables of Slurm as if there were trainers only, and $ZMQDATA_DISPATCHER names the "
        "service. All tasks end with the last trainer. The exit code is the first one of a trainer "
        "that is not 0.",
        WorkerConfig,
        ProcessSettings,
    )
    add_settings(parser, LogSettings)
    parser.add_argument(
        "--trainers",
        dest="ranks",
        type=int,
        default=1,
        metavar="N",
        help="number of tasks that run the command (default: 1)",
    )
    parser.set_defaults(exit_with_parent=False)
    return parser


def checked_process(chosen: argparse.Namespace, command: Sequence[str]) -> StepProcess:
    """Return the process of the step that this one is, and complete the options of a
    worker.

    Raises:
        ValueError: the options or the environment are no use.
    """
    if chosen.ranks < 1:
        raise ValueError(
            f"`--trainers` must be at least 1, got {chosen.ranks}. A step without a trainer has "
            "no end; start a dispatcher and workers by their own commands"
        )
    if not command:
        raise ValueError(f"The command of a trainer is missing. Write it behind `--`: {EXAMPLE}")
    if hasattr(chosen, "dispatcher_address"):
        raise ValueError(
            "`--dispatcher` names a dispatcher that runs already, and this command starts one in "
            "task 0. Leave it out, or start the workers by `zmqdata worker`"
        )
    process = step_process(os.environ, chosen.ranks)
    if not os.access(process.folder, os.W_OK):
        raise ValueError(
            f"The tasks of the step find each other by files in {process.folder} "
            "(SLURM_SUBMIT_DIR), which this one cannot write. Submit the job from a folder that "
            "exists on all machines, and that you may write"
        )
    chosen.dispatcher_address = FILE_SCHEME + process.dispatcher_file
    if not hasattr(chosen, "host") and "ZMQDATA_HOST" not in os.environ:
        chosen.host = EVERY_ADDRESS
    return process


def coordinate(process: StepProcess, chosen: argparse.Namespace, servers: ServerCommands) -> int:
    """Run the dispatcher until all trainers have ended, whatever signals come."""
    shared = vars(chosen).keys() & {"host", "key_file", "insecure"}
    given = {name: getattr(chosen, name) for name in shared}
    given["dispatcher_file"] = process.dispatcher_file
    config = chosen_settings(DispatcherConfig, argparse.Namespace(**given))
    with contextlib.closing(Coordinator(process)) as coordinator:
        return servers.serve_dispatcher(config, coordinator)


def work(supervise: Callable[[StopSignals], int], member: StepMember, stop: StopSignals) -> int:
    """Run a worker until the step ends. One that ends earlier waits for the end, as
    ``srun --wait`` would kill the other tasks.
    """
    for kind in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(kind, signal.SIG_IGN)  # also in the processes of the worker
    lost = threading.Event()

    def watch() -> None:
        try:
            member.hear()
        except EOFError:
            lost.set()
        exit_within(PATIENCE, NO_DISPATCHER if lost.is_set() else 0)
        os.kill(os.getpid(), signal.SIGINT)  # ends the worker without a drain

    watcher = threading.Thread(target=watch, name="zmqdata-step", daemon=True)
    watcher.start()
    code = guarded("zmqdata auto", lambda: supervise(stop))
    member.tell(0 if stop.received else code)
    watcher.join()
    if lost.is_set():
        raise EOFError
    return 0


def train(
    process: StepProcess,
    chosen: argparse.Namespace,
    command: Sequence[str],
    member: StepMember,
    stop: StopSignals,
) -> int:
    """Run the command of a trainer; return the verdict on the step."""
    nodes = member.hear(stop)["nodes"]
    settings = {"ZMQDATA_DISPATCHER": chosen.dispatcher_address}
    if getattr(chosen, "key_file", None):
        settings["ZMQDATA_KEY_FILE"] = chosen.key_file
    if getattr(chosen, "insecure", False):
        settings["ZMQDATA_INSECURE"] = "1"
    try:
        child = subprocess.Popen(  # noqa: S603 - the user's own command
            command,
            env={**os.environ, **rank_variables(process.number - 1, nodes), **settings},
            preexec_fn=partial(die_with_parent, os.getpid()),  # safe, as no other thread runs
        )
    except OSError as error:
        member.tell(
            complain(
                "zmqdata auto",
                f"The command of trainer {process.number - 1} cannot be started: `{command[0]}`: "
                f"{error.strerror}. Check its spelling, and that it is on the PATH of this machine",
            )
        )
        return int(member.hear()["verdict"])
    if stop.received:  # the signal came before its process
        child.terminate()
    while child.poll() is None:
        if member.await_message(stop):
            _end(child)
            break
    else:
        code = child.returncode
        member.tell(code if code >= 0 else SIGNALLED - code)
    return int(member.hear()["verdict"])


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the command of a trainer, which can read nothing more."""
    child.terminate()
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
