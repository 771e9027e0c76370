"""``Slurm``: workers as jobs of a Slurm cluster, and the batch scripts that start them.

Only the commands of Slurm are used. ``scancel`` without a signal drains: it sends
SIGTERM to the worker, and to the shell of the batch script, which therefore cannot
requeue the job. ``scancel --full --signal=TERM`` would reach ``srun``, too, which then
kills the worker at once. A signal for a job in the queue is tried for over a minute.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zmqdata.cluster.fleet import DRAINING, QUEUED, RUNNING, STARTING
from zmqdata.cluster.host import Host, HostError
from zmqdata.cluster.processes import command_options, stop_seconds
from zmqdata.config.endpoints import Service
from zmqdata.config.worker import WorkerConfig
from zmqdata.errors import FailedPreconditionError
from zmqdata.hosts.workers import WorkerOptions, warn_of_loopback
from zmqdata.worker.processes.options import ProcessSettings

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")
DEADLINE = 20.0
"""Seconds within which a command of Slurm has answered."""
LEAST_WARNING = 30
"""Least seconds between the signal at which a worker drains and the time limit."""
COMPLETES_WITHIN = 30.0
"""Seconds for which Slurm may take to clean up after a job whose worker has ended."""
TAIL_BYTES = 16_384
"""Bytes of a job's output that are searched for its last line."""
OURS = ("-J", "--job-name", "-a", "--array", "-o", "--output")
"""Options of ``sbatch`` that a host chooses itself."""
QUEUES = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "SUSPENDED", "STOPPED"}
)
STATES = {
    **dict.fromkeys(QUEUES, QUEUED),
    "CONFIGURING": STARTING,
    "RUNNING": RUNNING,
    **dict.fromkeys(("COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING"), DRAINING),
}
"""States of workers by those of their jobs. A job in another state has ended."""

WORKER_SCRIPT = """\
#!/bin/bash
{directives}
# Before SIGKILL, Slurm waits for KillWait seconds after scancel and at a time limit, and
# for GraceTime seconds at a preemption. A worker drains within 15 seconds unless
# `--drain-seconds` says otherwise: both should be as long.
srun --kill-on-bad-exit=0 --cpus-per-task="${{SLURM_CPUS_PER_TASK:-1}}" \\
    {command}
code=$?
# Code 5: Slurm's own signal began the drain, and the worker is still wanted. `scancel`
# ends this shell, too, so that a cancelled job does not return.
if [ "$code" = 5 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""
AUTO_SCRIPT = """\
#!/bin/bash
{directives}
# One step over both groups: the first process is the dispatcher, the next ones train,
# and those of the second group are workers. The step ends with the last training process.
srun --kill-on-bad-exit={kills} --het-group=0,1 \\
    {command}
"""


def options_of_sbatch(
    named: Mapping[str, str | None], more: Iterable[str], reserved: Sequence[str] = ()
) -> list[str]:
    """Return checked options of ``sbatch``.

    Args:
        named: values of options by their long names; None for an option that is left
            out.
        more: other options.
        reserved: names of options that may not be given.

    Raises:
        TypeError: an option is no string.
        ValueError: an option does not begin with a dash, has several lines, or is
            reserved.

    Example:
        >>> options_of_sbatch({"time": "10", "partition": None}, ["--qos=low"])
        ['--time=10', '--qos=low']
    """
    if isinstance(more, str):
        raise TypeError(f"`sbatch` must be a list of options, got {more!r}; write [{more!r}]")
    options = []
    for name, value in named.items():
        if value is not None and not isinstance(value, str):
            raise TypeError(f"`{name}` must be a string as for `sbatch --{name}`, got {value!r}")
        if value is not None:
            options.append(f"--{name}={value}")
    for option in more:
        if not isinstance(option, str):
            raise TypeError(f"`sbatch`: an option must be a string, got {option!r}")
        if option.split("=")[0] in reserved or option[:2] in reserved:
            raise ValueError(
                f"`sbatch`: a host chooses {option!r} itself. Leave it out; `logs` is the folder "
                "for output"
            )
        options.append(option)
    for option in options:
        if not option.startswith("-") or not option.isprintable():
            raise ValueError(
                f"`sbatch`: an option must begin with a dash and be a single line, got "
                f"{option!r}. Write it as in a batch script, for example '--qos=low'"
            )
    return options


def _directive(option: str) -> str:
    # Slurm has quotes like a shell, but does not join quoted parts.
    if shlex.quote(option) != option:
        option = '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"#SBATCH {option}"


def worker_script(
    config: WorkerConfig,
    processes: ProcessSettings,
    options: Sequence[str] = (),
    *,
    array: int = 0,
    python: str = sys.executable,
) -> str:
    """Return the batch script of a worker, or of a job array of workers. Its job has
    the worker's name.

    Args:
        config: configuration of the worker.
        processes: its processes.
        options: options of ``sbatch``; they win over those that the script has anyway.
        array: number of workers; 0 for a job that is no array.
        python: the interpreter on the machines of the workers.

    Example:
        >>> config = WorkerConfig("tcp://head:5050", name="reader")
        >>> script = worker_script(config, ProcessSettings(), ["--time=60"])
        >>> [line for line in script.splitlines() if "name" in line or "time=" in line]
        ['#SBATCH --job-name=reader', '#SBATCH --time=60', '    --name=reader']
    """
    name = config.name or "zmqdata-worker"
    words = [python, "-m", "zmqdata.worker"]
    words += _worker_words(config, processes)
    shown = f"--name={shlex.quote(name)}" + ("-$SLURM_ARRAY_TASK_ID" if array else "")
    # At the time limit itself Slurm signals the batch shell, too.
    warning = max(LEAST_WARNING, math.ceil(stop_seconds(config)))
    lines = [
        f"--job-name={name}",
        *([f"--array=0-{array - 1}"] if array else []),
        "--nodes=1",
        "--ntasks=1",
        *([] if processes.processes == "auto" else [f"--cpus-per-task={processes.count()}"]),
        "--requeue",
        "--open-mode=append",
        f"--signal=TERM@{warning}",
        *options,
    ]
    command = " \\\n    ".join([shlex.join(words[:3]), *map(shlex.quote, words[3:]), shown])
    return WORKER_SCRIPT.format(directives="\n".join(map(_directive, lines)), command=command)


def auto_script(
    command: Sequence[str],
    config: WorkerConfig,
    processes: ProcessSettings,
    workers: int,
    ranks: int = 1,
    options: Sequence[str] = (),
    worker_options: Sequence[str] = (),
    *,
    python: str = sys.executable,
) -> str:
    """Return the batch script of a heterogeneous job: a group of machines for the
    dispatcher and the training processes, and a group for the workers.

    Args:
        command: the training command.
        config: configuration of the workers; its name is that of the job, and the
            dispatcher is that of the job.
        processes: processes of each worker.
        workers: number of workers.
        ranks: number of training processes.
        options: options of ``sbatch`` for the first group.
        worker_options: options of ``sbatch`` for the workers.
        python: the interpreter on all machines.
    """
    first = [
        f"--job-name={config.name}",
        f"--ntasks={1 + ranks}",
        "--requeue",
        "--open-mode=append",
    ]
    lines = [
        *map(_directive, [*first, *options]),
        "#SBATCH hetjob",
        *map(_directive, [f"--ntasks={workers}", "--requeue", *worker_options]),
    ]
    words = [python, "-m", "zmqdata", "auto", f"--trainers={ranks}"]
    words += _worker_words(config, processes)[1:]
    # A single training process may outlive workers that are killed; several need each
    # other.
    return AUTO_SCRIPT.format(
        directives="\n".join(lines),
        kills=int(ranks > 1),
        command=shlex.join([*words, "--", *command]),
    )


def _worker_words(config: WorkerConfig, processes: ProcessSettings) -> list[str]:
    """Return the options of a worker without a name. The first is the dispatcher."""
    return command_options(replace(config, name=None)) + command_options(processes)


class Slurm(Host):
    """Keeps workers of a dispatcher running as jobs of a Slurm cluster.

    Each worker is a job with the worker's name. Slurm may preempt, requeue and cancel
    it. A worker in the queue stays there, and a requeued one is the same worker.

    Args:
        service: address of the dispatcher, as for ``distribute``, or ``file:PATH`` for
            the file that it writes to a disk that all machines share.
        partition: partition of the jobs; None for the default one.
        time: time limit of each job, as ``sbatch --time`` takes it.
        sbatch: more options of ``sbatch``, such as ``"--qos=low"``.
        logs: folder for the output of each job, on a disk that all machines share.
        python: the interpreter on the machines of the workers; None for the path of the
            one that runs this program.
        worker_options: as for ``Local``; ``host`` is ``"0.0.0.0"`` unless given. The
            machines have the key of the cluster already: ``key_file`` is a path there.

    Raises:
        TypeError: an option does not exist, or has the wrong type.
        ValueError: an option is out of its range, or contradicts another.
        FailedPreconditionError: this machine lacks the commands of Slurm.
        OSError: the folder for output cannot be made.

    Example: ::

        with hosts.Slurm("tcp://head:5050", partition="spot", time="4:00:00") as host:
            host.adapt(0, 16)
            train()

    Ours. ``dask_jobqueue.SLURMCluster`` resembles it.
    """

    poll = 1.0
    look_every = 2.0

    def __init__(
        self,
        service: Service,
        partition: str | None = None,
        time: str | None = None,
        sbatch: Iterable[str] = (),
        *,
        logs: str | os.PathLike[str] = ".",
        python: str | None = None,
        **worker_options: Any,
    ) -> None:
        options = WorkerOptions("Slurm", service, {"host": "0.0.0.0"} | worker_options)  # noqa: S104 - for other nodes
        self._sbatch = options_of_sbatch({"partition": partition, "time": time}, sbatch, OURS)
        self._python = sys.executable if python is None else python
        self._options = options
        missing = [command for command in COMMANDS if shutil.which(command) is None]
        if missing:
            raise FailedPreconditionError(
                f"`{missing[0]}` is not on the PATH of this process, so it cannot start jobs of "
                "Slurm. Run this program on a login node or within a job, load the module that "
                "has the commands of Slurm, or use `hosts.Local`."
            )
        self._logs = Path(logs).absolute()
        self._logs.mkdir(parents=True, exist_ok=True)
        warn_of_loopback(service)
        self._jobs: dict[str, str] = {}
        self._ended: dict[str, str] = {}
        self._stopped: set[str] = set()
        patience = stop_seconds(options.config) + COMPLETES_WITHIN
        super().__init__(service, "slurm", options.count, patience)

    def _states(self) -> dict[str, str]:
        with self._state:
            known = dict(self._jobs)
        if not known:
            return {}
        # By name: a job may have been submitted although `sbatch` did not answer.
        told = _call("squeue", "-h", "-o", "%i %T %j", f"--name={','.join(known)}")
        found: dict[str, str] = {}
        for line in told.splitlines():
            job, state, name = [*line.split(maxsplit=2), "", "", ""][:3]
            if state in STATES and known.get(name) in ("", job):
                found[name] = STATES[state]
                known[name] = job
        with self._state:
            for name, job in known.items():
                if name in found:
                    self._jobs[name] = job
                elif job and self._jobs.get(name) == job:
                    self._ended[name] = self._jobs.pop(name)
                    self._stopped.discard(name)
            again = [name for name in self._stopped & found.keys() if found[name] != DRAINING]
        # A job that was requeued, or that did not get its cancellation.
        self._cancel(again)
        return found | dict.fromkeys(again, DRAINING)

    def _launch(self, name: str) -> None:
        with self._state:
            if self._jobs.get(name):
                return  # Submitted, although `sbatch` did not answer in time.
            self._jobs[name] = ""
        config = replace(self._options.config, name=name)
        output = f"--output={self._output(name, '%j')}"
        script = worker_script(
            config, self._options.processes, [*self._sbatch, output], python=self._python
        )
        try:
            told = _call("sbatch", "--parsable", text=script)
        except SlurmRefusal:
            del self._jobs[name]
            raise
        with self._state:
            self._jobs[name] = told.strip().partition(";")[0]

    def _drain(self, names: Iterable[str]) -> None:
        with self._state:
            names = [name for name in names if name in self._jobs]
            self._stopped |= set(names)
        self._cancel(names)

    def _kill(self, names: Iterable[str]) -> None:
        self._cancel(names, "--full", "--signal=KILL")

    def _cancel(self, names: Iterable[str], *options: str) -> None:
        jobs = [job for name in names if (job := self._jobs.get(name))]
        if jobs:
            with contextlib.suppress(SlurmRefusal):  # a job that has ended
                _call("scancel", "--quiet", *options, *jobs)

    def _known(self) -> list[str]:
        with self._state:
            return [f"{name} (job {job or 'unknown'})" for name, job in self._jobs.items()]

    def _last_words(self, name: str) -> str:
        job = self._ended.pop(name, "")
        facts: dict[str, str] = {}
        with contextlib.suppress(HostError):
            told = _call("scontrol", "-o", "show", "job", job)
            facts = dict(part.split("=", 1) for part in told.split() if "=" in part)
        path = self._output(name, job)
        return (
            f"ended as job {job}, in state {facts.get('JobState', 'unknown')}, with exit code "
            f"{facts.get('ExitCode', 'unknown')}. The last line of {path}: {_last_line(path)}"
        )

    def _output(self, name: str, job: str) -> Path:
        return self._logs / f"{name}-{job}.log"


class SlurmRefusal(HostError):
    """Raised if a command of Slurm has answered with an error."""


def _call(*command: str, text: str | None = None) -> str:
    """Run a command of Slurm, and return what it prints.

    Raises:
        SlurmRefusal: the command has failed.
        HostError: it cannot be run, or has not answered in time.
    """
    # In a job, variables of that job would be options of the new ones. Only options
    # configure workers.
    kept = {"SLURM_CONF", "ZMQDATA_KEY_FILE"}
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(("SLURM_", "ZMQDATA_"))
    }
    try:
        done = subprocess.run(  # noqa: S603 - a command of Slurm
            command,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DEADLINE,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise HostError(
            f"`{command[0]}` has not answered within {DEADLINE:g} s. The controller of Slurm may "
            "be down or busy: ask it with `scontrol ping`."
        ) from None
    except OSError as error:
        raise HostError(f"`{command[0]}` cannot be run: {error.strerror}.") from None
    if done.returncode:
        words = " ".join((done.stderr or done.stdout).split())
        raise SlurmRefusal(f"`{command[0]}` has failed with code {done.returncode}: {words}")
    return done.stdout


def _last_line(path: Path) -> str:
    """Return the last line of the output of a job that Slurm did not write."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"none ({error.strerror}; is the disk shared?)"
    own = [line for line in lines if line.strip() and not line.startswith(("srun:", "slurmstepd"))]
    return own[-1] if own else "none"
