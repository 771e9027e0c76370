"""The form and the text of a fingerprint. ``fingerprints`` computes it."""

from __future__ import annotations

import msgspec


class Fingerprint(msgspec.Struct, frozen=True):
    """Three hashes of a pipeline. A change of the code causes a warning; a change of
    the structure makes it another pipeline.

    >>> Fingerprint.parse(str(Fingerprint("a", "b", "c")))
    Fingerprint(structure='a', code='b', functions='c')
    """

    structure: str
    """Hash of operations, their connections and parameters, and the content of arrays;
    32 hex digits.
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
