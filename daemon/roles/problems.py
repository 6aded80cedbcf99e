"""What could not be told about a checkpoint, gathered layer by layer and said in few sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

MAX_SENTENCES = 20
_MAX_EXAMPLES = 3

Report = Callable[[str], None]
"""Takes one problem of one layer, a clause without the layer's number."""


def examples(names: Iterable[str]) -> str:
    """The first few names, quoted and cut to a bearable length, and how many more there are."""
    listed = sorted(names)
    shown = ", ".join(f"{name!r:.120}" for name in listed[:_MAX_EXAMPLES])
    rest = len(listed) - _MAX_EXAMPLES
    return f"{shown} and {rest} more" if rest > 0 else shown


class Problems:
    """The same problem of many layers is one sentence; a hostile checkpoint gets no endless list."""

    def __init__(self) -> None:
        self._layers: dict[str, list[int]] = {}

    def at(self, layer: int) -> Report:
        """Where to report the problems of one layer."""
        return lambda problem: self._layers.setdefault(problem, []).append(layer)

    def sentences(self) -> tuple[str, ...]:
        """One sentence for each problem in the order of their first report, at most `MAX_SENTENCES`."""
        said = [f"{_listed(layers)}: {problem}" for problem, layers in self._layers.items()]
        if len(said) <= MAX_SENTENCES:
            return tuple(said)
        kept = said[: MAX_SENTENCES - 1]
        return (*kept, f"and {len(said) - len(kept)} more problems of this kind")


def _listed(layers: Sequence[int]) -> str:
    first, last = layers[0], layers[-1]
    if len(layers) == 1:
        return f"layer {first}"
    if last - first == len(layers) - 1:
        return f"layers {first} to {last}"
    shown = ", ".join(str(layer) for layer in layers[:_MAX_EXAMPLES])
    rest = len(layers) - _MAX_EXAMPLES
    return f"layers {shown} and {rest} more" if rest > 0 else f"layers {shown}"
