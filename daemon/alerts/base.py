"""What a notifier does."""

from __future__ import annotations

from typing import ClassVar

from foreshock.storage.records import StoredFinding


class Notifier:
    """Base of all notifiers: brings one finding to people.

    It may be called twice for the same finding (sent, then marked): `StoredFinding.id` tells.
    """

    name: ClassVar[str]

    def send(self, stored: StoredFinding) -> None:
        """Bring it, or raise: the finding is then offered again later."""
        raise NotImplementedError
