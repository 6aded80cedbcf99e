from __future__ import annotations

import math
from dataclasses import astuple

import pytest
import torch

from foreshock.daemon.linalg import Spectrum, spectra


def spectrum(*sigma: float) -> Spectrum:
    (found,) = spectra(torch.tensor([sigma], dtype=torch.float64))
    return found


def close_to(expected: Spectrum) -> object:
    """Equal to spectra that differ from it by rounding."""
    return Spectrum(*(pytest.approx(value, rel=1e-14) for value in astuple(expected)))


def test_equal_singular_values_have_full_effective_and_stable_rank() -> None:
    found = spectrum(3.0, 3.0, 3.0, 3.0)
    assert found == close_to(Spectrum(6.0, 3.0, 4.0, math.log(4), 4.0, 0.25))


def test_a_rank_one_matrix_has_rank_one_by_every_measure() -> None:
    assert spectrum(2.0, 0.0, 0.0) == Spectrum(2.0, 2.0, 1.0, 0.0, 1.0, 1.0)


def test_energy_shares_are_of_squares() -> None:
    found = spectrum(2.0, 1.0)
    entropy = -(0.8 * math.log(0.8) + 0.2 * math.log(0.2))
    expected = Spectrum(math.sqrt(5), 2.0, 1.25, entropy, math.exp(entropy), 0.8)
    assert found == close_to(expected)


def test_a_zero_matrix_has_norms_but_no_rank() -> None:
    assert spectrum(0.0, 0.0) == Spectrum(0.0, 0.0, None, None, None, None)


def test_a_matrix_without_elements_is_a_zero_matrix() -> None:
    assert spectra(torch.empty(2, 0)) == (Spectrum(0.0, 0.0), Spectrum(0.0, 0.0))


def test_a_zero_head_does_not_disturb_the_others() -> None:
    heads = spectra(torch.tensor([[1.0, 1.0], [0.0, 0.0], [5.0, 0.0]]))
    assert [head.effective_rank for head in heads] == [pytest.approx(2), None, 1.0]


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e20, 1e300])
def test_ranks_do_not_depend_on_the_size_of_numbers(size: float) -> None:
    found, unit = spectrum(2 * size, size), spectrum(2.0, 1.0)
    assert found.effective_rank == pytest.approx(unit.effective_rank, rel=1e-14)
    assert found.stable_rank == pytest.approx(1.25, rel=1e-14)
    assert found.frobenius_norm == pytest.approx(size * math.sqrt(5), rel=1e-14)


def test_rounding_never_leaves_the_ranges() -> None:
    generator = torch.Generator().manual_seed(0)
    sigma = torch.rand(200, 16, generator=generator, dtype=torch.float64).pow(20).sort(descending=True)[0]
    for found in spectra(sigma):
        assert found.stable_rank is not None
        assert found.effective_rank is not None
        assert found.spectral_entropy is not None
        assert found.top_energy is not None
        assert 1 <= found.stable_rank <= 16 * (1 + 1e-15)
        assert found.spectral_entropy >= 0
        assert 1 <= found.effective_rank <= 16 * (1 + 1e-14)
        assert 0 < found.top_energy <= 1
