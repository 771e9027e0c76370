"""Train a small language model on the standard library, packed and mixed.

    python examples/language_model.py

Each file of a package is a document, and each of its bytes is a token. Two workers pack
the documents of each package into rows, and mix the rows by weights. All rows have
equally many tokens, so the weights are the shares of tokens. A token attends to its own
document only.
"""

from __future__ import annotations

import argparse
import sysconfig
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from zmqdata import Dataset, LocalCluster, distribute

ROW = 128
"""Number of tokens of a row."""
END = 0
"""Token behind each document, which no file contains."""
LOSS = 2.6
"""Mean loss of the last ten steps, in nats, which training must reach. It begins at
5.5, the logarithm of the number of tokens.
"""
WEIGHTS = {"email": 2, "asyncio": 1, "json": 1}
"""Share of each package in the tokens, by name."""


def tokens(path: Any) -> Any:
    """Return the bytes of a file."""
    return np.frombuffer(Path(str(path)).read_bytes(), np.uint8)


def rows(package: str) -> Dataset:
    """Return the packed documents of a package, again and again in another order."""
    folder = Path(sysconfig.get_path("stdlib"), package)
    files = [str(file) for file in sorted(folder.glob("*.py"))]
    documents = Dataset.from_tensor_slices(files).shuffle(len(files)).repeat().map(tokens)
    return documents.pack(ROW, bins=16, overflow="split", eos=END)


class Model(nn.Module):
    """A transformer of two layers."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(256, width), nn.Embedding(ROW, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True)
            for _ in range(2)
        )
        self.scores, self.heads = nn.Linear(width, 256), heads

    def forward(self, row: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the mean loss of the tokens that follow another of their document."""
        ids, segments = row["tokens"].long(), row["tokens_segment_ids"]
        hidden = self.token(ids) + self.position(row["tokens_positions"].long() % ROW)
        # True where a token must not look: at later ones, and at other documents.
        apart = segments[:, :, None] != segments[:, None, :]
        hides = apart | torch.ones(ROW, ROW, dtype=torch.bool).triu(1)
        for layer in self.layers:
            hidden = layer(hidden, hides.repeat_interleave(self.heads, 0))
        counts = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
        return nn.functional.cross_entropy(self.scores(hidden[:, :-1])[counts], ids[:, 1:][counts])


def train(steps: int, batch: int) -> float:
    """Train, print what happens, and return the mean loss of the last ten steps."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    began, losses = time.perf_counter(), []
    with LocalCluster(num_workers=2) as cluster:
        mixture = Dataset.mix({name: rows(name) for name in WEIGHTS}, WEIGHTS, seed=1)
        batches = iter(mixture.batch(batch).apply(distribute("distributed_epoch", cluster.target)))
        for step in range(1, steps + 1):
            row = {name: torch.from_numpy(leaf) for name, leaf in next(batches).items()}
            loss = model(row)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step % 50 == 0 or step == steps:
                seconds = time.perf_counter() - began
                print(f"step {step}: loss {np.mean(losses[-10:]):.2f} after {seconds:.0f} s")
        for name, value in batches.stats().items():
            if name.startswith(("data/mix/", "data/pack/fill")):
                print(f"{name}: {value:.6g}")
        batches.close()
    return float(np.mean(losses[-10:]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=16, help="rows of a batch")
    arguments = parser.parse_args()
    reached = train(arguments.steps, arguments.batch)
    if arguments.steps >= 150 and reached > LOSS:
        raise SystemExit(f"the loss is {reached:.2f}, and should be below {LOSS}")
