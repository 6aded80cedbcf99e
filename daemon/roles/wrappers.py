"""Parameter names without what wrappers add to them.

DDP, FSDP, `torch.compile` and activation checkpointing each put a component into the path, anywhere;
it comes and goes when a job is restarted with other flags, and says nothing of the parameter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from foreshock.daemon.roles.problems import examples

WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


def canonical_name(name: str) -> str:
    """The name without the components that wrappers added; the last component always stays."""
    *path, leaf = name.split(".")
    return ".".join([part for part in path if part not in WRAPPERS] + [leaf])


def canonical_names(names: Iterable[str]) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Canonical names by saved name, and a warning about those that would collide.

    Names that become equal without wrappers keep their saved form, so that none hides another.
    """
    canonical = {name: canonical_name(name) for name in names}
    count = Counter(canonical.values())
    collided = [name for name, short in canonical.items() if count[short] > 1]
    if not collided:
        return canonical, ()
    warning = (
        f"{len(collided)} names collide once wrapper prefixes are removed, and are kept as saved:"
        f" {examples(collided)}"
    )
    return canonical | {name: name for name in collided}, (warning,)
