"""Program of JAX that the tests start once for each of two processes: it reads its part
of global arrays and prints the sum of each, with the rows of its own devices.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from zmqdata import Dataset, distribute
from zmqdata.jax import device_iterator


def coordinated(service: str, rank: int) -> Dataset:
    read = distribute(
        "distributed_epoch",
        service,
        job_name="mesh",
        num_consumers=2,
        consumer_index=rank,
        finite="drop",
    )
    rows = Dataset.range(48).map(np.float32)
    return rows.batch(4, drop_remainder=True).apply(read)


def main(service: str, port: str, rank: str) -> None:
    """Read from a service, or batches of which the last one is smaller."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=int(rank))
    mesh = Mesh(jax.devices(), ("rows",))
    partial = Dataset.range(10).map(np.float32).batch(4)
    dataset = partial if service == "-" else coordinated(service, int(rank))
    total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))
    with device_iterator(dataset, NamedSharding(mesh, PartitionSpec("rows"))) as batches:
        try:
            for batch in batches:
                assert (batch.shape, len(batch.addressable_shards)) == ((8,), 2)
                mine = [row for shard in batch.addressable_shards for row in shard.data.tolist()]
                print("STEP", json.dumps([float(total(batch)), mine]), flush=True)
        except ValueError as error:
            print("ERROR", error, flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
