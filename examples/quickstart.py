"""Train a small model on images that two worker processes draw.

python examples/quickstart.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import zmqdata


def draw(number: int) -> tuple[Any, int]:
    """Draw noise with a bright spot on its left (0) or right half (1), on a worker."""
    draws, label = np.random.default_rng(int(number)), int(number) % 2
    image = draws.normal(size=(16, 16))
    image[draws.integers(16), draws.integers(8) + 8 * label] += 9
    return image.astype(np.float32), label


def main() -> None:
    """Train for three epochs, and print how many labels the model has guessed right."""
    weights = np.zeros(256, np.float32)
    with zmqdata.LocalCluster(num_workers=2) as cluster:
        dataset = zmqdata.Dataset.range(4_000).map(draw).shuffle(1_000).batch(50)
        dataset = dataset.apply(zmqdata.distribute("distributed_epoch", cluster.target))
        for epoch in range(3):
            right = seen = 0
            for images, labels in dataset:  # numpy arrays of at most 50 rows
                pixels = images.reshape(len(images), -1)
                chances = 1 / (1 + np.exp(-pixels @ weights))
                weights -= 0.02 * (chances - labels) @ pixels / len(images)
                right, seen = right + ((chances > 0.5) == labels).sum(), seen + len(labels)
            print(f"epoch {epoch}: {seen} images, {right / seen:.0%} guessed right")


if __name__ == "__main__":
    main()
