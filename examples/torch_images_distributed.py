"""Train a small network on images that a DataLoader of torch decodes and augments.

    python examples/torch_images.py --epochs 2

The images are drawn once into a folder, so nothing is downloaded: discs and rings, as
JPEG files. Of the two scripts, ``torch_images_distributed.py`` lets workers of a
service do the work of the DataLoader: of the service at ``ZMQDATA_DISPATCHER``, or of
two workers that it starts. ``docs/pytorch.md`` shows the difference.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

from zmqdata import LocalCluster
from zmqdata.torch import distribute_dataloader


class Shapes(Dataset):
    """Images of discs (0) and rings (1), augmented at random."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.open(self.files[index]).rotate(random.uniform(-20, 20))  # noqa: S311
        pixels = torch.from_numpy(np.array(image)).float().permute(2, 0, 1) / 128 - 1
        if torch.rand(()) < 0.5:
            pixels = pixels.flip(2)
        return pixels, int(self.files[index].stem.endswith("ring"))


def draw(folder: Path, count: int) -> None:
    """Draw the images."""
    draws = random.Random(0)  # noqa: S311
    for number in range(count):
        image = Image.new("RGB", (64, 64), tuple(draws.choices(range(100), k=3)))
        left, top = draws.randrange(30), draws.randrange(30)
        box, colour = (left, top, left + 30, top + 30), tuple(draws.choices(range(150, 255), k=3))
        kind = ("disc", "ring")[number % 2]
        fill = colour if kind == "disc" else None
        ImageDraw.Draw(image).ellipse(box, fill=fill, outline=colour, width=5)
        image.save(folder / f"{number:05}-{kind}.jpg")


def train(folder: Path, epochs: int) -> None:
    """Train, and print the accuracy of each epoch."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 5, 2), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 13 * 13, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    loader = DataLoader(Shapes(folder), batch_size=32, shuffle=True, num_workers=2)
    cluster = None if "ZMQDATA_DISPATCHER" in os.environ else LocalCluster(num_workers=2)
    loader = distribute_dataloader(loader, cluster)

    for epoch in range(epochs):
        right = seen = 0
        for pixels, labels in loader:
            scores = model(pixels)
            loss = nn.functional.cross_entropy(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += int((scores.argmax(1) == labels).sum())
            seen += len(labels)
        print(f"epoch {epoch}: {seen} images, accuracy {right / seen:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=600)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder), arguments.images)
        train(Path(folder), arguments.epochs)
