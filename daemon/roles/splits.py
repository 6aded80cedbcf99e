"""Which rows of a fused attention tensor are q, k and v.

C is the width that a tensor reads.
"""

from __future__ import annotations

from foreshock.daemon.formats.base import TensorInfo
from foreshock.daemon.roles.architecture import Fused
from foreshock.daemon.roles.base import Heads, Part, Role
from foreshock.daemon.roles.model_config import ModelConfig
from foreshock.daemon.roles.problems import Report

LATENT_KEY_ROWS = "qk_nope_head_dim"
LATENT_VALUE_ROWS = "v_head_dim"


def plain_part(tensor: TensorInfo, *, transposed: bool = False) -> Part:
    """The whole tensor as one role."""
    rows = tensor.shape[1 if transposed else 0]
    return Part(tensor.name, groups=1, group_rows=rows, start=0, stop=rows, transposed=transposed)


def equal_thirds(fused: Fused, tensor: TensorInfo) -> tuple[int, bool] | None:
    """Rows of q, of k and of v where they are equal, and whether the tensor is stored transposed.

    Only `[Q; K; V]` occurs in both orientations; each third is as high as the input is wide, which
    tells them apart. None when the shape does not fit.

    Args:
        fused: of a layout in which q, k and v have equally many rows.
    """
    rows, columns = tensor.shape
    if fused.layout == "stacked":
        if columns == 3 * rows:
            return rows, True
        return (columns, False) if rows == 3 * columns else None
    return (rows // 3, False) if rows % 3 == 0 else None


def split(
    fused: Fused, tensor: TensorInfo, heads: Heads | None, config: ModelConfig, report: Report
) -> dict[Role, Part]:
    """One part per role of the layout; none, and a report, when the rows cannot be told apart."""
    if fused.layout == "latent":
        return _split_latent(fused, tensor, config, report)
    thirds = equal_thirds(fused, tensor)
    if thirds is None:
        wanted = "(C, 3C) or (3C, C)" if fused.layout == "stacked" else "(3C, C)"
        report(f"{fused.suffix} has shape {tensor.shape}, not {wanted}, and gets no q, k, v")
        return {}
    rows, transposed = thirds
    if fused.layout == "stacked":
        return _parts(fused, tensor, 1, (rows, rows, rows), transposed=transposed)
    if heads is None:
        report(f"{fused.suffix} holds [q k v] head by head and gets none of them without known heads")
        return {}
    return _parts(fused, tensor, heads.num_heads, (heads.head_dim,) * 3)


def _split_latent(fused: Fused, tensor: TensorInfo, config: ModelConfig, report: Report) -> dict[Role, Part]:
    key_rows, value_rows = config.integer((LATENT_KEY_ROWS,)), config.integer((LATENT_VALUE_ROWS,))
    if key_rows is None or value_rows is None:
        report(
            f"{fused.suffix} holds [k v] head by head and gets neither without {LATENT_KEY_ROWS} and"
            f" {LATENT_VALUE_ROWS}: put the model's config.json beside the checkpoint"
        )
        return {}
    groups, rest = divmod(tensor.shape[0], key_rows + value_rows)
    if rest:
        report(
            f"{fused.suffix} has {tensor.shape[0]} rows, no multiple of {LATENT_KEY_ROWS} {key_rows} +"
            f" {LATENT_VALUE_ROWS} {value_rows} of {config.source}, and gets no k, v"
        )
        return {}
    return _parts(fused, tensor, groups, (key_rows, value_rows))


def _parts(
    fused: Fused, tensor: TensorInfo, groups: int, widths: tuple[int, ...], *, transposed: bool = False
) -> dict[Role, Part]:
    """Every group of rows holds the roles one after the other, `widths` rows each."""
    parts: dict[Role, Part] = {}
    start = 0
    for role, width in zip(fused.roles, widths, strict=True):
        parts[role] = Part(tensor.name, groups, sum(widths), start, start + width, transposed)
        start += width
    return parts
