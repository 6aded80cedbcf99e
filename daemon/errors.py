"""Every error that Foreshock raises on purpose, split by what the reader must do.

    ForeshockError
    ├── CheckpointError
    │   ├── IncompleteCheckpoint   wait: it is still being written
    │   ├── CorruptCheckpoint      skip it and say so: it will never be right
    │   ├── UnsupportedCheckpoint  read the message: it says what is missing
    │   ├── UnreadableCheckpoint   fix permissions or the mount
    │   └── VanishedCheckpoint     nothing to do: the job deleted it, or wrote it again
    ├── ConfigError                edit the configuration; the message names the key
    ├── WorkerError                the reading process died or hung; it is started again
    └── NumericalError             one quantity of one layer is left out

Messages hold the path, the name and the numbers that disagree.
"""

from __future__ import annotations


class ForeshockError(Exception):
    """The root: nothing else is raised on purpose."""


class CheckpointError(ForeshockError):
    """A checkpoint gives no numbers; the subclass says what follows from that."""


class IncompleteCheckpoint(CheckpointError):
    """Parts are missing that a writer may still add: wait."""


class CorruptCheckpoint(CheckpointError):
    """The bytes contradict each other: no waiting will mend them."""


class UnsupportedCheckpoint(CheckpointError):
    """The bytes are sound, but nothing here can read them; the message says what is missing."""


class UnreadableCheckpoint(CheckpointError):
    """The operating system refuses the bytes (permission, I/O error)."""


class VanishedCheckpoint(CheckpointError):
    """Files disappeared or changed while they were read."""


class ConfigError(ForeshockError):
    """A setting is wrong; the message names it and says what would be right."""


class WorkerError(ForeshockError):
    """The process that reads checkpoints died, hung or broke its protocol."""


class NumericalError(ForeshockError):
    """A decomposition was refused or gave a result that contradicts its input."""
