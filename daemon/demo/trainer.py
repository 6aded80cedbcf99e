"""A real training job, in a process of its own, that writes checkpoints and knows of no watcher.

    python -m foreshock.daemon.demo.trainer --output DIR [--fault none]

It trains a byte-level decoder on the standard library's source. With `--fault attention` its
attention gradients get the biased error of a low-precision kernel from the step after
`--onset-step` on. Standard output carries one JSON object per ten steps.

At the default settings a run takes about a minute on one core. For seeds 0 to 3 the loss passes 1.1
times its best 400 to 500 steps after the onset; without the fault it falls to the end.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import statistics
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from foreshock.daemon.demo.checkpoints import delete_oldest, save_checkpoint
from foreshock.daemon.demo.corpus import Batches, standard_library_text
from foreshock.daemon.demo.model import Decoder, ModelShape

LOGGING_STEPS = 10
NUM_SEQUENCES = 16
PEAK_LEARNING_RATE = 5e-4
WARMUP_STEPS = 100
MAX_GRAD_NORM = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What one run does.

    Attributes:
        output: directory that receives the checkpoints.
        fault: `attention` switches the fault on, `none` never does.
        onset_step: last step without the fault.
        strength: η of the fault, see `causal_attention`.
        keep: how many checkpoints stay on disk; None keeps all.
    """

    output: Path
    fault: Literal["attention", "none"] = "attention"
    onset_step: int = 1000
    strength: float = 0.002
    steps: int = 1700
    save_every: int = 50
    seed: int = 0
    threads: int = 1
    keep: int | None = None

    def attention_bias(self, step: int) -> float:
        """η at a step."""
        return self.strength if self.fault == "attention" and step > self.onset_step else 0.0


@dataclass(frozen=True, slots=True)
class Update:
    """One optimizer step; `grad_norm` is that before clipping."""

    step: int
    loss: float
    learning_rate: float
    grad_norm: float

    @property
    def finite(self) -> bool:
        """Whether training can go on."""
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)

    def as_log_entry(self, loss: float) -> dict[str, object]:
        """An entry of `log_history` with the given mean loss; null for what is not finite."""
        values = {"loss": loss, "learning_rate": self.learning_rate, "grad_norm": self.grad_norm}
        numbers = {name: x if math.isfinite(x) else None for name, x in values.items()}
        return {"step": self.step, **numbers}


@dataclass(slots=True)
class Journal:
    """The loss as the Hugging Face Trainer logs it: the mean over each logging interval."""

    report: Callable[[Mapping[str, object]], None]
    history: list[Mapping[str, object]] = field(default_factory=list)
    _losses: list[float] = field(default_factory=list, init=False)

    def add(self, update: Update) -> None:
        """Take in a step, and report when it ends an interval or the run."""
        self._losses.append(update.loss)
        if update.step % LOGGING_STEPS == 0 or not update.finite:
            entry = update.as_log_entry(statistics.fmean(self._losses))
            self._losses.clear()
            self.history.append(entry)
            self.report(entry)


class Optimization:
    """A model on its way down: AdamW, a short warm-up, clipped gradients."""

    def __init__(self, model: Decoder) -> None:
        self.model = model
        self._optimizer = AdamW(model.parameters(), lr=PEAK_LEARNING_RATE, weight_decay=0.0, fused=True)

    def update(self, step: int, tokens_BT: Tensor) -> Update:
        """Learn from one batch; the weights stay as they are when loss or gradient is not finite."""
        learning_rate = PEAK_LEARNING_RATE * min(1.0, step / WARMUP_STEPS)
        self._optimizer.param_groups[0]["lr"] = learning_rate
        self._optimizer.zero_grad()
        loss = self.model.loss(tokens_BT)
        loss.backward()  # type: ignore[no-untyped-call]
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), MAX_GRAD_NORM)
        update = Update(step, loss.item(), learning_rate, grad_norm.item())
        if update.finite:
            self._optimizer.step()
        return update


def train(
    settings: Settings, *, report: Callable[[Mapping[str, object]], None], stop: threading.Event
) -> None:
    """Train until the last step, a loss or gradient that is not finite, or a request to stop."""
    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    shape = ModelShape()
    model = Decoder(shape)
    batches = Batches(
        standard_library_text(),
        num_sequences=NUM_SEQUENCES,
        num_tokens=shape.max_tokens + 1,
        seed=settings.seed,
    )
    optimization, journal = Optimization(model), Journal(report)
    for step in range(1, settings.steps + 1):
        if stop.is_set():
            return
        model.set_attention_bias(settings.attention_bias(step))
        update = optimization.update(step, batches.draw())
        journal.add(update)
        if not update.finite:
            return
        if step % settings.save_every == 0:
            _save(settings, model, step, journal)


def _save(settings: Settings, model: Decoder, step: int, journal: Journal) -> None:
    save_checkpoint(
        settings.output,
        tensors=model.state_dict(),
        config=model.shape.as_config(),
        state={
            "global_step": step,
            "max_steps": settings.steps,
            "logging_steps": LOGGING_STEPS,
            "save_steps": settings.save_every,
            "train_batch_size": NUM_SEQUENCES,
            "log_history": journal.history,
        },
    )
    if settings.keep is not None:
        delete_oldest(settings.output, keep=settings.keep)


def parse_arguments(arguments: Sequence[str] | None = None) -> Settings:
    """Settings from the command line; ends the process with a message when they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m foreshock.daemon.demo.trainer", argument_default=argparse.SUPPRESS
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--fault", choices=["attention", "none"])
    parser.add_argument("--onset-step", type=_at_least(0))
    parser.add_argument("--strength", type=float)
    parser.add_argument("--steps", type=_at_least(1))
    parser.add_argument("--save-every", type=_at_least(1))
    parser.add_argument("--seed", type=_at_least(0))
    parser.add_argument("--threads", type=_at_least(1))
    parser.add_argument("--keep", type=_at_least(1))
    return Settings(**vars(parser.parse_args(arguments)))


def _at_least(lowest: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        number = int(text)
        if number < lowest:
            raise argparse.ArgumentTypeError(f"{number} is below {lowest}")
        return number

    return whole_number


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job; SIGTERM ends it after the step in progress."""
    settings = parse_arguments(arguments)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    train(settings, report=_print_line, stop=stop)


def _print_line(entry: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(entry) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
