"""One store, several threads."""

from __future__ import annotations

import threading

from foreshock.storage.store import Store

RANK = "update.effective_rank"
STEPS = 30
UNITS = 40


def test_readers_see_whole_checkpoints_while_another_thread_writes(store, run, attempt, measured, sample):
    done = threading.Event()
    problems, reads = [], []

    def read():
        while not done.is_set():
            series = store.series(run.id, RANK)
            reads.append(len(series))
            if len({each.steps for each in series}) > 1 or len(series) not in {0, UNITS}:
                problems.append(series)
            if len({sample.step for _, sample in store.latest(run.id)}) > 1:
                problems.append("latest")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for step in range(STEPS):
        samples = [sample(step, float(step), unit=f"head.{unit}") for unit in range(UNITS)]
        store.record_measurement(attempt.id, measured(step), samples)
    done.set()
    for reader in readers:
        reader.join()

    assert problems == []
    assert len(reads) >= 2
    assert {each.steps for each in store.series(run.id, RANK)} == {tuple(range(STEPS))}


def test_writers_in_threads_and_in_another_store_do_not_lose_each_others_attempts(store, run, database_url):
    with Store.open(database_url) as other:
        threads = [
            threading.Thread(target=each.open_attempt, args=(run.id, 0, f"{number}"))
            for number, each in enumerate([store, other] * 5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    opened = store.attempts(run.id)
    assert [each.ordinal for each in opened] == list(range(1, 11))
    assert {each.reason for each in opened} == {str(number) for number in range(10)}
