"""A run that looks like a real one, served by a real server, seen by a real browser."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

from foreshock.api.app import create_app
from foreshock.api.server import ApiServer
from foreshock.storage.records import (
    CheckpointRecord,
    CheckpointState,
    Finding,
    Metric,
    Sample,
    SeriesKey,
    Status,
)
from foreshock.storage.store import Store

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)

RUN = "llama-1b-fp8"
NUM_LAYERS = 24
NUM_HEADS = 12
STEPS = tuple(range(250, 10_001, 250))
MISSED_STEP = 4_250
COLLAPSING_LAYER = 3
ONSET = 7_000

METRICS = (
    Metric("qk_first_order.effective_rank", "Effective rank of the first-order change of the score operator"),
    Metric("update.effective_rank", "Effective rank of the weight update"),
    Metric("update.relative_norm", "Norm of the update over the norm of the weight"),
    Metric("training.loss", "Loss that the trainer logged", "nats"),
)


def collapse(layer: int, step: int) -> float:
    """How far the fault has gone, from 0 to 1; neighbours follow late and little."""
    reach = {0: 1.0, 1: 0.25}.get(abs(layer - COLLAPSING_LAYER), 0.0)
    return reach * (1 - math.exp(-max(0, step - ONSET) / 700))


def key(metric: str, layer: int | None, role: str, unit: str = "", lag: int = 1) -> SeriesKey:
    parameter = f"model.layers.{layer}.self_attn.{role}_proj.weight" if layer is not None else ""
    return SeriesKey(metric, layer, role, parameter, unit, lag)


def layer_samples(layer: int, step: int, random_: random.Random) -> Iterator[Sample]:
    """One layer at one step: heads, whole matrix, norm."""
    progress = step / STEPS[-1]
    healthy = 34 + 42 * (1 - math.exp(-3 * progress)) + 9 * math.sin(layer / 3.4)
    rank = healthy * (1 - 0.93 * collapse(layer, step))
    early = "below_resolution" if layer > 19 and step < 1_500 else ""
    for head in range(NUM_HEADS):
        value = max(1.0, rank * (0.8 + 0.4 * head / NUM_HEADS) + random_.gauss(0, 2.2 * rank / 80))
        undefined = layer == 10 and 5_000 <= step <= 5_750
        reason = "frozen_parameter" if undefined else early
        identity = key("qk_first_order.effective_rank", layer, "qk", f"head.{head}")
        yield Sample(identity, step, None if undefined else value, step - 250, reason)
        identity = key("update.effective_rank", layer, "q", f"head.{head}")
        yield Sample(identity, step, max(1.0, value * 0.31), step - 250, early)
    yield Sample(key("update.effective_rank", layer, "q"), step, rank * 1.6, step - 250, early)
    norm = (
        2e-3 * 10 ** (-2.3 * progress) * (1 + 30 * collapse(layer, step)) * math.exp(random_.gauss(0, 0.05))
    )
    yield Sample(key("update.relative_norm", layer, "q"), step, norm, step - 250)


def losses(step: int, random_: random.Random) -> Iterator[Sample]:
    """What the trainer logged since the checkpoint before; it rises only long after the onset."""
    for at in range(step - 200, step + 1, 50):
        rise = 0.9 * max(0, at - 9_300) / 700
        value = 2.1 + 6.5 * math.exp(-at / 900) + rise + random_.gauss(0, 0.03)
        yield Sample(key("training.loss", None, "training", lag=0), at, value)


def finding(step: int) -> Iterator[Finding]:
    if step in {7_500, 8_000}:
        severity = "warning" if step == 7_500 else "critical"
        said = "The effective rank of the q·k update fell to a third of its own past within two checkpoints."
        yield Finding("rank_collapse", "layer 3, qk", step, severity, said, COLLAPSING_LAYER)


def record_run(store: Store) -> None:
    """The run that the screenshots show."""
    random_ = random.Random(20)
    store.register_metrics(METRICS)
    run = store.ensure_run(RUN, "/checkpoints/llama-1b-fp8")
    attempt = store.open_attempt(run.id, STEPS[0], "first checkpoint")
    for step in STEPS:
        path = f"/checkpoints/llama-1b-fp8/step-{step}"
        if step == MISSED_STEP:
            state = CheckpointState.MISSED
            store.note_checkpoint(
                attempt.id, step=step, path=path, state=state, reason="deleted_before_it_was_read"
            )
            continue
        change = step != STEPS[0]
        samples = [
            sample for layer in range(NUM_LAYERS) for sample in layer_samples(layer, step, random_) if change
        ]
        checkpoint = CheckpointRecord(
            1,
            step,
            path,
            CheckpointState.MEASURED,
            format="safetensors",
            bytes_read=2_471_000_000,
            seconds=21.4,
        )
        store.record_measurement(
            attempt.id, checkpoint, [*samples, *losses(step, random_)], list(finding(step))
        )
    detail = {"run": RUN, "interval_seconds": 10.0, "backlog": 0, "last_error": ""}
    store.set_status(Status(f"watch:{RUN}", datetime.now(UTC), True, detail))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """With the run that `record_run` makes."""
    path = tmp_path_factory.mktemp("browser") / "foreshock.sqlite"
    with Store.open(f"sqlite:///{path}") as opened:
        record_run(opened)
        yield opened


@pytest.fixture(scope="module")
def url(store: Store) -> Iterator[str]:
    """Of a server over `store`."""
    with ApiServer(create_app(store, version="0.1.0")) as server:
        yield server.url


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, which asks nobody for anything."""
    if not CHROMIUM.exists() and "CI" not in os.environ:
        pytest.skip(f"{CHROMIUM} is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()


@dataclass
class Watched:
    """A page, and everything about it that must not happen."""

    page: Page
    trouble: list[str] = field(default_factory=list)

    def listen(self, origin: str) -> None:
        self.page.on("console", lambda said: self.trouble.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.trouble.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.trouble.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda sent: sent.url.startswith(origin) or self.trouble.append(sent.url))
        self.page.on("requestfailed", self.note_failure)
        self.page.add_init_script(
            "addEventListener('securitypolicyviolation', e => console.error('CSP', e.violatedDirective))"
        )

    def note_failure(self, sent: Request) -> None:
        if sent.failure != "net::ERR_ABORTED":  # a reload ends what is under way
            self.trouble.append(f"{sent.failure}: {sent.url}")


Open = Callable[..., Watched]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., tuple[Store, str]]]:
    """Serves a store, a new one if none is given, until the test's pages are closed."""
    with ExitStack() as stack:

        def start(store: Store | None = None, *, token: str | None = None) -> tuple[Store, str]:
            served = store or stack.enter_context(Store.open(f"sqlite:///{tmp_path}/foreshock.sqlite"))
            server = stack.enter_context(ApiServer(create_app(served, token=token, version="0.1.0")))
            return served, server.url

        yield start


@pytest.fixture
def open_page(browser: Browser, serve: object) -> Iterator[Open]:
    """Opens an address in a fresh profile; fails the test if anything there goes wrong."""
    opened: list[Watched] = []

    def opening(address: str, **options: Any) -> Watched:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        watched = Watched(context.new_page())
        watched.listen("{0.scheme}://{0.netloc}/".format(urlsplit(address)))
        opened.append(watched)
        watched.page.goto(address)
        return watched

    yield opening
    trouble = [each for watched in opened for each in watched.trouble]
    for watched in opened:
        watched.page.context.close()
    assert trouble == []
