"""The command that renders batch scripts for Slurm."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from zmqdata.cli.options import (
    check_dispatcher_named,
    chosen_settings,
    command_parser,
    guarded,
    say_or_end,
)
from zmqdata.cluster.following import MOST_WORKERS
from zmqdata.config.checks import check_int
from zmqdata.config.worker import WorkerConfig
from zmqdata.hosts.slurm import auto_script, options_of_sbatch, worker_script
from zmqdata.worker.processes.options import ProcessSettings

OWN_DISPATCHER = "file:dispatcher"
"""Stands for the dispatcher of the job itself, which `zmqdata auto` finds."""
NAME = "zmqdata"
"""Name of jobs without another."""


def slurm_main(arguments: Sequence[str], program: str = "zmqdata slurm") -> int:
    """Print a batch script; return the exit code."""
    parser = command_parser(
        program,
        "Prints a batch script: of a worker, of an array of workers, or of a whole training. "
        "`--name` is the name of the job, too.",
        WorkerConfig,
        ProcessSettings,
    )
    parser.add_argument("action", choices=["script"], help="what to do")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--array", type=int, metavar="N", help="a job array of N workers")
    kind.add_argument(
        "--het",
        action="store_true",
        help="a heterogeneous job of a dispatcher, training processes and workers, by `zmqdata "
        "auto`; COMMAND trains",
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="workers of --het")
    parser.add_argument(
        "--trainers",
        dest="ranks",
        type=int,
        default=1,
        metavar="N",
        help="training processes of --het",
    )
    parser.add_argument("--partition", metavar="NAME", help="partition of the job")
    parser.add_argument("--time", metavar="TIME", help="time limit of the job, as for sbatch")
    for flag, meaning in (("--sbatch", ""), ("--worker-sbatch", " for the workers of --het")):
        parser.add_argument(
            flag,
            action="append",
            default=[],
            metavar="OPTION",
            help=f"an option of sbatch{meaning}, as {flag}=--qos=low; repeat it for more",
        )
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="FILE",
        help="interpreter on the machines of the job (default: the one of this command)",
    )
    given = list(arguments)
    cut = given.index("--") if "--" in given else len(given)
    chosen = parser.parse_args(given[:cut])
    return guarded(program, lambda: _render(chosen, given[cut + 1 :]))


def _render(chosen: argparse.Namespace, command: Sequence[str]) -> int:
    where = {"partition": chosen.partition, "time": chosen.time}
    options = options_of_sbatch(where, chosen.sbatch)
    if chosen.het != bool(command) or (chosen.worker_sbatch and not chosen.het):
        raise ValueError(
            "`--het` needs the training command, as in `--het -- python train.py`; a training "
            "command, and `--worker-sbatch`, need `--het`"
        )
    if chosen.het:
        chosen.dispatcher_address = OWN_DISPATCHER
    check_dispatcher_named(chosen, WorkerConfig, "where is the dispatcher?")
    if not hasattr(chosen, "host"):
        chosen.host = "0.0.0.0"  # noqa: S104 - workers serve other machines
    config = chosen_settings(WorkerConfig, chosen)
    config = replace(config, name=config.name or NAME)
    processes = chosen_settings(ProcessSettings, chosen)
    numbers = {"array": chosen.array, "workers": chosen.workers, "trainers": chosen.ranks}
    for name, number in numbers.items():
        if number is not None:
            check_int(name, number, least=1, most=MOST_WORKERS)
    if chosen.het:
        script = auto_script(
            command,
            config,
            processes,
            chosen.workers,
            chosen.ranks,
            options,
            options_of_sbatch(where, chosen.worker_sbatch),
            python=chosen.python,
        )
    else:
        array = chosen.array or 0
        script = worker_script(config, processes, options, array=array, python=chosen.python)
    say_or_end(script.rstrip())
    return 0
