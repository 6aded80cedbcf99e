"""Every function over the matrices that break others: it answers or raises `NumericalError`, at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from foreshock.daemon.errors import NumericalError
from foreshock.daemon.linalg import (
    Stored,
    blockwise_singular_values,
    conditioning,
    cosine,
    count_nonfinite,
    frobenius_norm,
    gram,
    headwise_singular_values,
    isotropic_entropy,
    qk_increment,
    row_norms,
    score_norms,
    similarity,
    singular_values,
    spectra,
)

FINITE = {
    "zero": torch.zeros(4, 6),
    "constant": torch.full((4, 6), 0.5),
    "1 × 1": torch.tensor([[2.0]]),
    "1 × N": torch.arange(6.0).reshape(1, 6),
    "N × 1": torch.arange(6.0).reshape(6, 1),
    "no rows": torch.empty(0, 6),
    "no columns": torch.empty(4, 0),
    "nothing": torch.empty(0, 0),
    "subnormal": torch.full((4, 6), 1e-45),
    "largest": torch.full((4, 6), torch.finfo(torch.float32).max),
}
NONFINITE = {
    "all NaN": torch.full((4, 6), math.nan),
    "all Inf": torch.full((4, 6), math.inf),
    "all −Inf": torch.full((4, 6), -math.inf),
    "one Inf": torch.diag(torch.tensor([math.inf, 1.0, 1.0])),
    "one NaN": torch.tensor([[1.0, 2.0], [math.nan, 3.0]]),
}
DECOMPOSING: dict[str, Callable[[Tensor], object]] = {
    "singular_values": singular_values,
    "blockwise_singular_values": lambda m: blockwise_singular_values(Stored(m)),
    "headwise_singular_values": lambda m: headwise_singular_values(Stored(m.unsqueeze(0))),
    "qk_increment": lambda m: qk_increment((one_head(m), one_head(m)), (one_head(m), one_head(m))),
    "score_norms": lambda m: score_norms(one_head(m), one_head(m)),
}
OTHERS: dict[str, Callable[[Tensor], object]] = {
    "frobenius_norm": lambda m: frobenius_norm(Stored(m)),
    "cosine": lambda m: cosine(Stored(m), Stored(m)),
    "gram": lambda m: gram(Stored(m)),
    "count_nonfinite": count_nonfinite,
    "conditioning": conditioning,
    "similarity": similarity,
    "row_norms": row_norms,
    "isotropic_entropy": isotropic_entropy,
    "sigmoid entropy": lambda m: isotropic_entropy(m, "sigmoid"),
}


def one_head(matrix: Tensor) -> Stored:
    return Stored(matrix.unsqueeze(0))


@pytest.mark.parametrize("function", (DECOMPOSING | OTHERS).values(), ids=(DECOMPOSING | OTHERS).keys())
@pytest.mark.parametrize("matrix", FINITE.values(), ids=FINITE.keys())
def test_finite_matrices_are_answered(function: Callable[[Tensor], object], matrix: Tensor) -> None:
    function(matrix.double())


@pytest.mark.parametrize("function", DECOMPOSING.values(), ids=DECOMPOSING.keys())
@pytest.mark.parametrize("matrix", NONFINITE.values(), ids=NONFINITE.keys())
def test_nonfinite_matrices_are_never_decomposed(
    function: Callable[[Tensor], object], matrix: Tensor
) -> None:
    with pytest.raises(NumericalError, match="NaN or Inf"):
        function(matrix.double())


@pytest.mark.parametrize("function", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("matrix", NONFINITE.values(), ids=NONFINITE.keys())
def test_nonfinite_matrices_do_no_harm_elsewhere(
    function: Callable[[Tensor], object], matrix: Tensor
) -> None:
    function(matrix.double())


@pytest.mark.parametrize("matrix", FINITE.values(), ids=FINITE.keys())
def test_every_finite_matrix_has_a_spectrum_in_range(matrix: Tensor) -> None:
    sigma = singular_values(matrix.double())
    assert sigma.shape == (min(matrix.shape),)
    (found,) = spectra(sigma.unsqueeze(0))
    assert found.frobenius_norm == pytest.approx(frobenius_norm(Stored(matrix)))
    assert (found.effective_rank is None) == (found.frobenius_norm == 0)
    if found.effective_rank is not None:  # all of them have rank one
        assert found.effective_rank == pytest.approx(1)


@pytest.mark.parametrize("poison", ["all NaN", "one Inf"])
def test_a_nonfinite_matrix_has_no_finite_norm(poison: str) -> None:
    assert not math.isfinite(frobenius_norm(Stored(NONFINITE[poison])))
