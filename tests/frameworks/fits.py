"""Trainers of Ray that the tests start: ``python fits.py SERVICE FOLDER...``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def train(config: dict[str, str]) -> None:
    """Read two epochs, and fail once if the folder has the file ``fail``."""
    import ray.train

    from tests.frameworks.launched import main
    from zmqdata.testing.cluster import await_condition

    folder, again = Path(config["folder"]), Path(config["folder"]) / "again"
    fails = (folder / "fail").exists() and ray.train.get_context().get_world_rank() == 0
    if not fails:
        main(config["service"], str(again if again.exists() else folder))
        return
    try:
        main(config["service"], str(folder), fail="100")
    except RuntimeError:
        await_condition(lambda: len([*folder.glob("*.rows")]) == 2, what="the other worker")
        again.mkdir()
        (folder / "fail").unlink()
        raise


def fit(service: str, folder: str) -> None:
    """Train with two workers, which may fail once."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    Path(folder).mkdir(exist_ok=True)
    fitting: Any = TorchTrainer(
        train,
        train_loop_config={"service": service, "folder": folder},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=f"{folder}-store", failure_config=FailureConfig(max_failures=1)
        ),
    )
    fitting.fit()


if __name__ == "__main__":
    import ray

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    for one in sys.argv[2:]:
        fit(sys.argv[1], one)
