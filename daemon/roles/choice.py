"""Which table a checkpoint is read with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foreshock.daemon.roles.architecture import Architecture
from foreshock.daemon.roles.model_config import ModelConfig
from foreshock.daemon.roles.towers import Blocks, Tower, towers


def best_towers(
    found: Mapping[tuple[str, str], Blocks], architectures: Sequence[Architecture], config: ModelConfig
) -> tuple[Tower, ...]:
    """All towers of the table that knows most, the one to be measured first; empty if none knows any.

    Most attention parameters decide, then most parameters of attention and routers, then the
    configuration's `model_type`, then the order of the tables.
    """
    candidates = [seen for table in architectures if (seen := towers(found, table))]
    if not candidates:
        return ()
    return max(candidates, key=lambda seen: _score(seen[0], config))


def _score(tower: Tower, config: ModelConfig) -> tuple[int, int, bool]:
    spoken_for = config.text(("model_type",)) in tower.architecture.model_types
    return tower.num_attention, tower.num_measured, spoken_for
