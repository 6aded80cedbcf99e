"""Runs, their attempts, and the catalogue."""

from __future__ import annotations

from foreshock.storage.records import Metric


def test_a_run_is_made_once_and_follows_its_directory(store):
    first = store.ensure_run("llama", "/old")
    again = store.ensure_run("llama", "/new")
    assert (again.id, again.path, again.created_at) == (first.id, "/new", first.created_at)
    assert store.runs() == (again,)
    assert store.run("llama") == again
    assert store.run("mistral") is None


def test_attempts_are_counted_from_one_in_each_run(store):
    llama, mistral = store.ensure_run("llama", "/l"), store.ensure_run("mistral", "/m")
    first = store.open_attempt(llama.id, 0, "first checkpoint")
    second = store.open_attempt(llama.id, 0, "first checkpoint")
    other = store.open_attempt(mistral.id, 50, "first checkpoint")
    assert [each.ordinal for each in (first, second, other)] == [1, 2, 1]
    assert store.attempts(llama.id) == (first, second)
    assert (other.first_step, other.reason) == (50, "first checkpoint")


def test_the_catalogue_is_corrected_and_never_shortened(store):
    rank = Metric("update.effective_rank", "exp of the entropy", "1", 1.0, None, "arXiv:2606.28116")
    norm = Metric("update.frobenius_norm", "size of the update", low=0.0)
    store.register_metrics([rank, norm])
    better = Metric("update.effective_rank", "exponential of the spectral entropy", "1", 1.0, None, "§3.2")
    store.register_metrics(iter([better]))
    store.register_metrics([])
    assert store.metrics() == (better, norm)
