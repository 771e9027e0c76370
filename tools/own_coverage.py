"""Coverage of each pure module by its own tests; run by ``make coverage`` after a test
run with contexts.

With ``--tests`` it lists the test modules that this run needs, since coverage by other
tests does not count.

A module that only other modules' tests cover is covered by accident: the next change to
those tests may remove it. Shells and descriptions without behaviour are not measured.
``TESTED_IN`` names the tests of what has no test module of its own name.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parent.parent
UNMEASURED = {
    # Tests with sockets, threads and processes cover these.
    "__main__.py": "cli/test_commands.py",
    "cli/asking.py": "cli/test_commands.py",
    "cli/commands.py": "cli/test_commands.py",
    "cli/keeper.py": "processes/test_keeper.py",
    "cli/auto.py": "processes/test_auto.py",
    "cli/autoscale.py": "cli/test_autoscale.py",
    "cli/membership.py": "processes/test_auto.py",
    "cli/top.py": "processes/test_top.py",
    "cli/watching.py": "processes/test_top.py dashboard/test_report.py",
    "client": "client service",
    "cluster": "cluster",
    "dispatcher": "dispatcher service",
    "hosts": "hosts",
    "testing": "testing",
    "transport": "transport",
    "worker": "worker service",
    "machine/exiting.py": "machine/test_exiting.py",
    # Tests in environments of their own cover these.
    "jax.py": "frameworks/test_jax.py",
    "keras.py": "frameworks/test_keras.py",
    "operations/huggingface.py": "formats/test_hf.py",
    "measures/telemetry.py": "worker/tasks/test_runner.py looking/test_otel.py",
    "tensorflow.py": "frameworks/test_tensorflow.py",
    "torch": "pytorch frameworks",
    # These only describe.
    "config/dispatcher.py": "config/test_servers.py",
    "config/worker.py": "config/test_servers.py",
    "messages": "test_messages.py",
    "splits.py": "test_splits.py",
    "updates.py": "core/dispatcher/state",
}
"""Tests of the modules and folders whose coverage is not measured."""
TESTED_IN = {
    "config/dashboard.py": "dashboard/test_server.py",
    "config/metrics.py": "metrics/test_serving.py",
    "config/telemetry.py": "cli/test_trace.py",
    "cli/slurm.py": "hosts/test_slurm_scripts.py",
    "cli/step.py": "cli/test_auto.py",
    "core/client/events.py": "core/test_events.py",
    "core/client/profile.py": "dataset/test_profiling.py",
    "core/dispatcher/events.py": "core/test_events.py",
    "core/worker/distribution.py": "core/worker/test_decider.py",
    "core/worker/events.py": "core/test_events.py core/worker/test_decider.py",
    "core/worker/profile.py": "core/worker/test_heartbeats.py dataset/test_profiling.py",
    "dataset/indexing.py": "iterators/test_random_access.py",
    "elements/texts.py": "elements/test_casting.py",
    "iterators/inputs.py": "iterators/test_deciding.py iterators/test_captured.py",
    "iterators/permutation.py": "operations/test_sequences.py operations/test_shuffle.py",
    "iterators/calling.py": "iterators/test_base.py",
    "iterators/context.py": "iterators/test_base.py",
    "iterators/indexed.py": "operations/test_sources.py iterators/test_naming.py",
    "iterators/stacking.py": "operations/test_batch.py",
    "iterators/states.py": "iterators/test_base.py",
    "iterators/watch.py": "iterators/test_callsites.py",
    "machine/runkeys.py": "client/test_runs.py client/test_runs_of_ray.py",
    "measures/situation.py": "measures/test_verdict.py",
    "metrics/declared.py": "metrics/test_serving.py",
    "metrics/listening.py": "metrics/test_serving.py",
    "metrics/monitors.py": "metrics/test_serving.py",
    "nodes/parts.py": "client/test_parts.py",
    "pipelines/definitions.py": "pipelines/test_classes.py",
    "pipelines/forms.py": "pipelines/test_contents.py",
    "pipelines/functions.py": "pipelines/test_pickler.py",
    "pipelines/holding.py": "pipelines/test_generators.py pipelines/test_unsendable.py",
    "pipelines/weighing.py": "pipelines/test_parcels.py",
    "storage/progress.py": "cli/test_save_progress.py",
    "storage/remote.py": "storage/test_files.py",
    "storage/shards.py": "operations/test_stored.py",
}
"""Tests of the pure modules that have no test module of their own name."""
OF_EACH = {
    "operations": "iterators/test_random_access.py iterators/test_naming.py",
}
"""Tests of a feature that each module of a folder has: access to elements by number,
and their names.
"""
BELOW = {
    "core/dispatcher/datasets.py": 94,
    "core/dispatcher/state/snapshots.py": 93,
    "blocks/gathered.py": 88,
    "blocks/references.py": 79,
    "blocks/structures.py": 88,
    "cli/doctor.py": 93,
    "cli/options.py": 91,
    "cli/replay.py": 86,
    "cli/trace.py": 94,
    "config/logs.py": 93,
    "config/telemetry.py": 89,
    "core/client/checkpoint.py": 92,
    "core/client/coordinated.py": 93,
    "core/client/leaving.py": 68,
    "core/client/lineage.py": 93,
    "core/client/notices.py": 89,
    "core/client/quarantine.py": 67,
    "core/client/tasks.py": 93,
    "core/credit.py": 93,
    "core/dispatcher/readers/admission.py": 86,
    "core/dispatcher/passes/checkpoints.py": 84,
    "core/dispatcher/readers/coordinated.py": 93,
    "core/dispatcher/decider.py": 91,
    "core/dispatcher/tasks/holdings.py": 83,
    "core/dispatcher/tasks/hosting.py": 91,
    "core/dispatcher/peers/lease.py": 89,
    "core/dispatcher/tasks/lineage.py": 90,
    "core/dispatcher/peers/liveness.py": 77,
    "core/dispatcher/tasks/placement.py": 83,
    "core/dispatcher/passes/runs.py": 81,
    "core/dispatcher/saving.py": 76,
    "core/dispatcher/state/measures.py": 91,
    "core/dispatcher/state/outbox.py": 79,
    "core/dispatcher/state/state.py": 87,
    "core/dispatcher/state/tasks.py": 63,
    "core/job_rules.py": 87,
    "core/limits.py": 76,
    "core/lineage.py": 74,
    "core/rounds.py": 93,
    "core/worker/draining.py": 70,
    "core/worker/heartbeats.py": 92,
    "core/worker/lineage.py": 91,
    "core/worker/links.py": 86,
    "core/worker/speeds.py": 76,
    "core/worker/splits.py": 93,
    "core/worker/tasks.py": 69,
    "dashboard/server.py": 93,
    "dashboard/watching.py": 91,
    "dataset/feeding.py": 91,
    "dataset/readers.py": 93,
    "dataset/resuming.py": 75,
    "dataset/sharing.py": 91,
    "elements/conversion.py": 88,
    "elements/dates.py": 82,
    "elements/declared.py": 92,
    "elements/extensions.py": 84,
    "elements/lists.py": 85,
    "elements/nesting.py": 82,
    "elements/specs.py": 91,
    "elements/subclasses.py": 66,
    "elements/tensors.py": 69,
    "elements/untyped.py": 61,
    "files/matching.py": 92,
    "files/paths.py": 79,
    "iterators/base.py": 72,
    "iterators/calling.py": 79,
    "iterators/context.py": 79,
    "operations/batch.py": 89,
    "iterators/draws.py": 76,
    "iterators/element_maker.py": 77,
    "operations/folds.py": 93,
    "iterators/guarding.py": 76,
    "iterators/inference.py": 81,
    "iterators/inputs.py": 90,
    "operations/loading.py": 59,
    "iterators/ownthreads.py": 82,
    "operations/parallel.py": 87,
    "iterators/permutation.py": 90,
    "operations/random_map.py": 88,
    "iterators/results.py": 67,
    "operations/sequences.py": 87,
    "operations/sources.py": 75,
    "iterators/indexed.py": 75,
    "operations/stored.py": 89,
    "operations/mapping.py": 69,
    "machine/runkeys.py": 91,
    "machine/threads.py": 69,
    "measures/meter.py": 91,
    "metrics/listening.py": 88,
    "metrics/serving.py": 92,
    "nodes/base.py": 90,
    "operations/padding.py": 92,
    "nodes/parts.py": 66,
    "peeking.py": 91,
    "pipelines/classes.py": 88,
    "pipelines/findable.py": 90,
    "pipelines/fingerprints.py": 75,
    "pipelines/generators.py": 90,
    "pipelines/ownmodules.py": 92,
    "pipelines/packing.py": 77,
    "pipelines/parcels.py": 71,
    "pipelines/pickler.py": 82,
    "pipelines/reducing.py": 64,
    "pipelines/unpickler.py": 82,
    "pipelines/unsendable.py": 93,
    "pipelines/weighing.py": 85,
    "printable.py": 25,
    "storage/manifests.py": 82,
}
"""Percentages of the modules that are short of ``REQUIRED``, which may only rise. A
module that is short of its own percentage has lost tests.
"""
EXAMPLES = "tests/test_docstrings.py"
"""Tests that run the examples of each module's docstrings."""
SHORT = "<-- below"
REQUIRED = 95
"""Percentage that each other module must reach."""


def is_measured(module: str) -> bool:
    """Return True if neither a module nor a folder that it is in is unmeasured."""
    path = Path(module)
    return UNMEASURED.keys().isdisjoint(one.as_posix() for one in (path, *path.parents))


def pure_modules() -> list[str]:
    """Return the paths within the package of the modules that are measured."""
    package = ROOT / "zmqdata"
    paths = (path for path in sorted(package.rglob("*.py")) if path.name != "__init__.py")
    return [*filter(is_measured, (path.relative_to(package).as_posix() for path in paths))]


def own_tests(module: str) -> list[str]:
    """Return the paths within the repository of a module's tests."""
    path = Path(module)
    tests = TESTED_IN.get(module) or (path.parent / f"test_{path.name}").as_posix()
    shared = OF_EACH.get(path.parent.as_posix(), "")
    return [f"tests/{one}" for one in f"{tests} {shared}".split()]


def own_coverage(measured: coverage.Coverage, module: str) -> float:
    """Return the percentage of lines and branches that run at import, under the
    module's own tests, or as an example in one of its docstrings.
    """
    name = f"zmqdata.{module.removesuffix('.py').replace('/', '.')}"
    contexts = ["^$", *(f"^{re.escape(one)}::" for one in own_tests(module))]
    contexts.append(rf"^{re.escape(EXAMPLES)}::\w+\[{re.escape(name)}\]")
    try:
        return measured.report(
            include=[str(ROOT / "zmqdata" / module)],
            contexts=contexts,
            file=io.StringIO(),
            skip_covered=False,
        )
    except coverage.exceptions.NoDataError:
        return 0.0


def main() -> int:
    if "--tests" in sys.argv:
        wanted = {one for module in pure_modules() for one in own_tests(module)}
        print(*sorted({EXAMPLES, *wanted}))
        return 0
    measured = coverage.Coverage(data_file=str(ROOT / ".coverage"))
    measured.load()
    shares = {module: own_coverage(measured, module) for module in pure_modules()}
    notes = {module: judged(module, share) for module, share in shares.items()}
    for module, share in sorted(shares.items(), key=lambda pair: pair[1]):
        print(f"{share:6.1f} %  zmqdata/{module}{notes[module]}")
    return 1 if any(SHORT in note for note in notes.values()) else 0


def judged(module: str, share: float) -> str:
    """Return the note on the percentage of a module, an empty text for nearly all."""
    required = BELOW.get(module, REQUIRED)
    if share < required:
        return f"   {SHORT} {required} %"
    return "   take it out of BELOW" if module in BELOW and share >= REQUIRED else ""


if __name__ == "__main__":
    sys.exit(main())
