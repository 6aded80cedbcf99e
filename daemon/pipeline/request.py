"""What is to be measured: plain values that travel to the measuring process as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

DEFAULT_LAGS = (1, 4, 16)


@dataclass(frozen=True, slots=True)
class HeadCounts:
    """Numbers of heads that the user gave; None = not given."""

    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """One checkpoint to read.

    Attributes:
        path: of the checkpoint, absolute.
        signature: that its files must still have; empty to read whatever is there.
        cached: path of its copy in the base cache; empty when there is none.
    """

    step: int
    path: str
    signature: str = ""
    cached: str = ""


@dataclass(frozen=True, slots=True)
class Base:
    """The far end of a difference.

    Attributes:
        lag: how many checkpoints back.
        before: the base itself.
        earlier: as far back again, for the persistence of updates.
    """

    lag: int
    before: Source
    earlier: Source | None = None


@dataclass(frozen=True, slots=True)
class CacheOrder:
    """Where to keep the tensors that later differences need.

    Attributes:
        target: file to write for the measured checkpoint.
        keep: cached files that later differences still need; the directory's others are removed.
        max_bytes: of the directory; the oldest go first.
    """

    target: str
    keep: tuple[str, ...]
    max_bytes: int


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """One checkpoint, its bases, and how to go about it.

    Attributes:
        config: path of a config.json to use; empty to look beside and above the checkpoint.
        log_after: step after which the trainer's own log (loss, learning rate) is taken over.
        device: `cpu`, `cuda`, `cuda:1`.
        bases_required: fail when a base cannot be read, instead of leaving its differences out.
    """

    target: Source
    bases: tuple[Base, ...] = ()
    heads: HeadCounts = HeadCounts()
    config: str = ""
    log_after: int = -1
    device: str = "cpu"
    bases_required: bool = False
    cache: CacheOrder | None = None

    def to_json(self) -> dict[str, Any]:
        """For the way to the measuring process."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> MeasureRequest:
        """The same request on the other side."""
        cache = fields["cache"]
        return cls(
            target=Source(**fields["target"]),
            bases=tuple(_base(base) for base in fields["bases"]),
            heads=HeadCounts(**fields["heads"]),
            config=fields["config"],
            log_after=fields["log_after"],
            device=fields["device"],
            bases_required=fields["bases_required"],
            cache=CacheOrder(cache["target"], tuple(cache["keep"]), cache["max_bytes"]) if cache else None,
        )


def _base(fields: Mapping[str, Any]) -> Base:
    earlier = fields["earlier"]
    return Base(fields["lag"], Source(**fields["before"]), Source(**earlier) if earlier else None)
