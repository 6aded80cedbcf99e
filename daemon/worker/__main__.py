"""`python -m foreshock.daemon.worker scan|measure|inspect …`: started by `process.Worker` alone."""

from __future__ import annotations

import importlib
import logging
import sys

from foreshock.daemon.worker.channel import Channel, become_a_good_neighbour

ROLES = {"scan": "scanning", "measure": "measuring", "inspect": "inspecting"}


def main() -> None:
    """Serve one role until the parent closes the pipe."""
    role, *arguments = sys.argv[1:]
    become_a_good_neighbour()
    channel = Channel()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    module = importlib.import_module(f"foreshock.daemon.worker.{ROLES[role]}")  # torch only where needed
    module.serve(channel, arguments)


if __name__ == "__main__":
    main()
