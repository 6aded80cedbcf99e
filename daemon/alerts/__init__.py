"""Every notifier. To add one: write one file with a `Notifier`, and name it in `NOTIFIERS`."""

from __future__ import annotations

from foreshock.daemon.alerts.base import Notifier
from foreshock.daemon.alerts.log import LogNotifier

NOTIFIERS: tuple[Notifier, ...] = (LogNotifier(),)
