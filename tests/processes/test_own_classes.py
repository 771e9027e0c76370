"""Tests of a script's own classes in its training loop, from workers in its process and
in other processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.realprocess

SCRIPT = """
    import dataclasses, enum, json, sys, typing
    from zmqdata import Dataset, LocalCluster, distribute

    class Colour(enum.Enum):
        RED = 1

    class Base:
        def __init__(self, x):
            self.x, self.shown = x, show(x)

    class Plain(Base):
        def __init__(self, x):
            super().__init__(x)
            self.colour = Colour.RED

    @dataclasses.dataclass
    class Record:
        x: int

    class Pair(typing.NamedTuple):
        a: Record
        b: int

    def show(x):
        return f"<{x}>"

    def make(x):
        x = int(x)
        if x == 2:
            raise Trouble(f"no {x}")
        return {"plain": Plain(x), "pair": Pair(Record(x), x)}

    class Trouble(ValueError):
        pass

    def judge(element):
        plain, pair = element["plain"], element["pair"]
        assert plain.shown == f"<{plain.x}>" and plain.x == pair.a.x
        return [isinstance(plain, Plain), type(plain) is Plain, type(pair) is Pair, type(pair.a) is Record,
                plain.colour is Colour.RED]

    def read(service, **options):
        dataset = Dataset.range(2).map(make).apply(distribute("distributed_epoch", service, **options))
        return [judge(element) for element in dataset]

    def read_local_class(service):
        class Inside:
            pass
        dataset = Dataset.range(2).map(lambda x: Inside()).apply(
            distribute("distributed_epoch", service, target_workers="LOCAL"))
        return [type(element) is Inside for element in dataset]

    def keeps_going(service):
        dataset = Dataset.range(2, 3).map(make).apply(distribute("distributed_epoch", service))
        try:
            list(dataset)
        except Exception as error:
            return str(error)

    if __name__ == "__main__":
        found = {}
        with LocalCluster(2, in_process=True) as cluster:
            found["local"] = read(cluster.target, target_workers="LOCAL", job_name="one")
            found["again"] = read(cluster.target, target_workers="LOCAL", job_name="two")
            found["tcp"] = read(cluster.target, data_transfer_protocol="tcp")
            found["inside"] = read_local_class(cluster.target)
            found["error"] = keeps_going(cluster.target)
        with LocalCluster(1) as cluster:
            found["processes"] = read(cluster.target)
        print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script: Path = tmp_path_factory.mktemp("script") / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    got = subprocess.run(
        [sys.executable, str(script)], capture_output=True, timeout=100, text=True, env=env
    )
    assert got.returncode == 0, got.stderr
    answer: dict[str, Any] = json.loads(got.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("way", ["local", "again", "tcp", "processes"])
def test_elements_are_instances_of_the_script_s_classes(found: dict[str, Any], way: str) -> None:
    """Classes, dataclasses, named tuples and enumerations of ``__main__`` are the very
    same, wherever workers live.
    """
    assert found[way] == [[True] * 5] * 2


def test_classes_within_functions_are_the_same_in_one_process(found: dict[str, Any]) -> None:
    """Classes within functions have no importable name, and need none in one
    process.
    """
    assert found["inside"] == [True, True]


def test_errors_of_the_script_s_own_kinds_arrive(found: dict[str, Any]) -> None:
    """A failure reports its exception, also if both sides share the exception's
    class.
    """
    assert "Trouble: no 2" in found["error"]
