"""Who makes and who reads each value of a graph, by position: what fusion patterns are matched on."""

from __future__ import annotations

from collections.abc import Sequence

from planner.graph.op_graph import OpGraph


class Wiring:
    """Positions of makers and readers.

    Attributes:
        graph: the graph.
        maker: value name -> position of the operator that makes it.
        readers: value name -> positions of the operators that read it, ascending.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.maker = {name: position for position, op in enumerate(graph.ops) for name in op.writes}
        self.readers: dict[str, list[int]] = {}
        for position, op in enumerate(graph.ops):
            for name in op.reads:
                self.readers.setdefault(name, []).append(position)
        self._outputs = frozenset(graph.outputs)

    def producers_of(self, position: int) -> list[int]:
        """Makers of an operator's inputs, in input order, each once."""
        found = (self.maker.get(name) for name in self.graph.ops[position].reads)
        return list(dict.fromkeys(producer for producer in found if producer is not None))

    def is_inner(self, name: str, members: frozenset[int]) -> bool:
        """Whether a value is read only by the members, and is no graph output."""
        return name not in self._outputs and all(reader in members for reader in self.readers.get(name, ()))

    def closed(self, members: Sequence[int]) -> bool:
        """Whether values made by members other than the last are all read inside only."""
        inside = frozenset(members)
        last = max(members)
        return all(
            self.is_inner(name, inside)
            for member in members
            if member != last
            for name in self.graph.ops[member].writes
        )

    def only_reader(self, position: int) -> int | None:
        """The one operator that reads an operator's one output, if it is no graph output."""
        written = self.graph.ops[position].writes
        readers = self.readers.get(written[0], []) if len(written) == 1 else []
        return readers[0] if len(readers) == 1 and written[0] not in self._outputs else None

    def made_by(self, name: str, *op_types: str) -> int | None:
        """Position of a value's maker if it is an ONNX operator of one of these types."""
        position = self.maker.get(name)
        if position is None:
            return None
        op = self.graph.ops[position]
        return position if not op.domain and op.op_type in op_types else None

    def next(self, position: int, *op_types: str) -> int | None:
        """The only reader, if it is an ONNX operator of one of these types."""
        reader = self.only_reader(position)
        if reader is None:
            return None
        op = self.graph.ops[reader]
        return reader if not op.domain and op.op_type in op_types else None

    def variable_inputs(self, position: int) -> list[str]:
        """An operator's inputs that are no weights."""
        return [name for name in self.graph.ops[position].inputs if name and name not in self.graph.weights]

    def has_weight(self, position: int) -> bool:
        """Whether some input is a weight."""
        return any(name in self.graph.weights for name in self.graph.ops[position].inputs)
