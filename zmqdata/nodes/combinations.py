"""Nodes with several inputs. Running belongs to ``iterators``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from zmqdata.elements.nesting import map_structure
from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, merge_joined_specs
from zmqdata.nodes.base import NOTHING_AGAIN, Infer, Node


@dataclass(frozen=True, kw_only=True)
class Zip(Node):
    """Joins an element of each input; ends with the shortest input."""

    template: Any
    """Nesting of the result, with the number of an input at each leaf."""
    operation: ClassVar[str] = "zip"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def cardinality(self) -> int:
        counts = [node.cardinality for node in self.inputs]
        if UNKNOWN_CARDINALITY in counts:
            return UNKNOWN_CARDINALITY
        return min((count for count in counts if count >= 0), default=INFINITE_CARDINALITY)

    def spec(self, infer: Infer) -> Any:
        specs = [infer(node) for node in self.inputs]
        return map_structure(lambda number: specs[number], self.template)


@dataclass(frozen=True, kw_only=True)
class Concatenate(Node):
    """Yields the elements of each input in turn."""

    operation: ClassVar[str] = "concatenate"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def cardinality(self) -> int:
        counts = [node.cardinality for node in self.inputs]
        for endless in (INFINITE_CARDINALITY, UNKNOWN_CARDINALITY):
            if endless in counts:
                return endless
        return sum(counts)

    def spec(self, infer: Infer) -> Any:
        specs = map(infer, self.inputs)
        return merge_joined_specs(specs, lambda: [node.cardinality for node in self.inputs])
