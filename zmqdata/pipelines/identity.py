"""The form of a fingerprint: what is told apart by it, and its text. How one is made is
in ``fingerprints``.
"""

from __future__ import annotations

import msgspec


class Fingerprint(msgspec.Struct, frozen=True):
    """Three hashes: changed code is worth a warning, changed structure is another
    pipeline.

    Attributes:
        structure: operations, how they are joined, their parameters, the content of
            arrays; 32 hex digits.
        code: names and bytecode of all functions, and the values that they hold; 32 hex
            digits.
        functions: the same without the values, which differ between the runs of one
            script with other arguments.

    >>> Fingerprint.parse(str(Fingerprint("a", "b", "c")))
    Fingerprint(structure='a', code='b', functions='c')
    """

    structure: str
    code: str
    functions: str = ""

    def __str__(self) -> str:
        return f"{self.structure}:{self.code}:{self.functions}"

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        """Read what ``str`` wrote."""
        structure, _, rest = text.partition(":")
        code, _, functions = rest.partition(":")
        return cls(structure, code, functions)
