"""The elements of the cases. Most cost next to nothing to make, so that only their
transport is measured. Three are made as training programs make theirs: photographs are
decoded, texts are tokenized, and windows are cut from a series.

Each kind has a few different elements, which are used in turn: enough that they do not
stay in the processor's caches, few enough that they take no time to make.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

ENDLESS = 10**12
VARIANTS = 4
"""Elements of a kind: a power of two. Photographs have two."""
PAGE = 4096
"""Bytes of a memory page."""
LARGE = 65_536
"""Bytes from which on an element counts as large."""


@cache
def variants(name: str) -> list[Any]:
    """Return the different elements of a kind; ``bytes:N`` is an array of N bytes."""
    draw = np.random.default_rng(0)

    def noise(*shape: int) -> list[Any]:
        return [draw.integers(0, 255, shape, np.uint8) for _ in range(VARIANTS)]

    if name.startswith("bytes:"):
        return noise(int(name.removeprefix("bytes:")))
    if name == "kilobytes":
        return noise(1024)
    if name == "digits":
        return noise(28, 28)
    if name == "images":
        return noise(224, 224, 3)
    if name == "batches":
        return noise(32, 224, 224, 3)
    if name == "floats":
        return [draw.random((32, 224, 224, 3), np.float32) for _ in range(VARIANTS)]
    if name == "tokens":
        return [draw.integers(0, 50_000, (32, 4096), np.int64) for _ in range(VARIANTS)]
    if name in ("photographs", "float photographs"):
        from sklearn.datasets import load_sample_images

        images = [np.ascontiguousarray(image, np.uint8) for image in load_sample_images().images]
        return (
            images
            if name == "photographs"
            else [image.astype(np.float32) / 255 for image in images]
        )
    if name in MADE:
        return [MADE[name](x) for x in range(VARIANTS)]
    raise ValueError(f"There is no kind of element {name!r}")


@cache
def files() -> list[bytes]:
    """Return photographs of 640 x 480 pixels as JPEG: soft forms with some noise."""
    from PIL import Image

    draw, found = np.random.default_rng(0), []
    for _ in range(VARIANTS):
        forms = Image.fromarray(draw.integers(0, 255, (12, 16, 3), np.uint8))
        soft = np.asarray(forms.resize((640, 480), Image.Resampling.BICUBIC), np.int16)
        pixels = (soft + draw.integers(-8, 8, soft.shape)).clip(0, 255).astype(np.uint8)
        kept = io.BytesIO()
        Image.fromarray(pixels).save(kept, "JPEG", quality=90)
        found.append(kept.getvalue())
    return found


def decoded(x: int) -> Any:
    """Decode a photograph and resize it to 224 x 224 pixels."""
    from PIL import Image

    image = Image.open(io.BytesIO(files()[x % VARIANTS]))
    return np.array(image.resize((224, 224), Image.Resampling.BILINEAR))


@cache
def texts() -> list[str]:
    """Return texts of 400 words."""
    draw = np.random.default_rng(0)
    return [" ".join(f"word{n}" for n in draw.zipf(1.3, 400) % 50_000) for _ in range(VARIANTS)]


def tokenized(x: int) -> Any:
    """Split a text into words, and return 512 numbers: of each word, and zeros."""
    words = texts()[x % VARIANTS].lower().split()
    tokens = np.zeros(512, np.int64)
    tokens[: len(words)] = [1 + zlib.crc32(word.encode()) % 50_000 for word in words]
    return tokens


@cache
def series() -> Any:
    """Return measurements of 100,000 moments, eight each."""
    return np.random.default_rng(0).random((100_000, 8), np.float32)


def window(x: int) -> Any:
    """Cut 256 moments out of the series, and scale them."""
    begin = x * 17 % 99_000
    cut = series()[begin : begin + 256]
    return (cut - cut.mean(axis=0)) / cut.std(axis=0)


MADE: dict[str, Callable[[int], Any]] = {
    "decoded photographs": decoded,
    "tokenized texts": tokenized,
    "windows": window,
}
"""Elements that cost what they cost in a training program."""


@dataclass(frozen=True, slots=True)
class Make:
    """A function from a number to an element, which every peer can send to its workers.

    It has slots, since CPython before 3.13 reads attributes of an object more slowly
    once it has been pickled.
    """

    name: str
    """Kind of element."""
    spins: int = 0
    """For ``work``: steps of a Python loop that an element takes."""

    def __call__(self, x: Any) -> Any:
        name = self.name
        if name == "increments":
            return x + 1
        if name == "work":
            return spin(self.spins, x)
        if name == "scalars":
            return x
        if name in MADE:
            return MADE[name](int(x))
        kept = variants(name)
        if name == "digits":
            return {"image": kept[x & (VARIANTS - 1)], "label": x}
        return kept[x % len(kept)]


def spin(spins: int, x: Any) -> Any:
    """Run a loop of pure Python."""
    total = 0
    for number in range(spins):
        total += number
    return x


def touch_array(array: Any) -> None:
    """Read the last item."""
    array.item(-1)


def touch_pages(array: Any) -> None:
    """Read a byte of each page."""
    array.reshape(-1).view(np.uint8)[::PAGE].sum()


def touch_digit(element: Any) -> None:
    """Read the last item of each leaf."""
    element["image"].item(-1)
    int(element["label"])


def touching(name: str) -> Callable[[Any], Any]:
    """Return the function by which a consumer reads an element of a kind."""
    if name in ("scalars", "increments", "work"):
        return int
    if name == "digits":
        return touch_digit
    return touch_pages if variants(name)[0].nbytes >= LARGE else touch_array


def weight(name: str) -> int:
    """Return the bytes of an element."""
    if name in ("scalars", "increments", "work"):
        return 8
    return int(variants(name)[0].nbytes) + (8 if name == "digits" else 0)
