"""The form and the text of a fingerprint, and when two of them are those of the same
pipeline. ``pipelines.fingerprints`` computes it.
"""

from __future__ import annotations

import msgspec

VERSION = "v3-"
"""Beginning of the text, which changes with the way in which fingerprints are computed.
The first version had none.
"""


class Fingerprint(msgspec.Struct, frozen=True):
    """Three hashes of a pipeline. A change of the code causes a warning; a change of
    the structure makes it another pipeline.

    >>> Fingerprint.parse(str(Fingerprint("a", "b", "c")))
    Fingerprint(structure='a', code='b', functions='c')
    """

    structure: str
    """Version, and hash of operations, their connections and parameters, and the
    content of arrays; 32 hex digits.
    """
    code: str
    """Hash of names and bytecode of all functions, and of the values that they hold; 32
    hex digits.
    """
    functions: str = ""
    """The same hash without the values, which differ between runs of a script with
    other arguments.
    """

    def __str__(self) -> str:
        return f"{self.structure}:{self.code}:{self.functions}"

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        """Parse the text that ``str`` returns."""
        structure, _, rest = text.partition(":")
        code, _, functions = rest.partition(":")
        return cls(structure, code, functions)

    def is_comparable(self, other: Fingerprint) -> bool:
        """Return True if both were computed in the same way. Otherwise they tell
        nothing about whether the pipelines are the same.

        >>> Fingerprint("v2-a", "b").is_comparable(Fingerprint("a", "b"))
        False
        """
        return _version(self) == _version(other)

    def is_other(self, other: Fingerprint) -> bool:
        """Return True if the pipelines differ in more than their code.

        >>> Fingerprint("a", "b").is_other(Fingerprint("a", "c"))
        False
        >>> Fingerprint("v2-a", "b").is_other(Fingerprint("a", "b"))
        False
        """
        return self.is_comparable(other) and self.structure != other.structure


def _version(fingerprint: Fingerprint) -> str:
    return fingerprint.structure.rpartition("-")[0] or "v1"


def uncompared(then: Fingerprint, now: Fingerprint) -> str:
    """Return the warning of a state whose fingerprint has another version."""
    return (
        f"this state was written by another build of zmqdata, whose fingerprints have version "
        f"{_version(then)}, and those of this build have version {_version(now)}. The pipelines "
        "can therefore not be compared. The state is loaded as if they were the same: make sure "
        "that the dataset definition has not changed since the state was saved"
    )
