"""Files that are bytes in memory, for tests of parsers that need no filesystem."""

from __future__ import annotations

from pathlib import Path

from foreshock.daemon.formats.files import Files, FileState


class MemoryFiles(Files):
    """One content under every name."""

    def __init__(self, content: bytes) -> None:
        super().__init__(Path("/nowhere"))
        self._content = content

    def state(self, name: str) -> FileState:
        return FileState(len(self._content), 0, 0)

    def read_into(self, name: str, offset: int, buffer: memoryview) -> None:
        part = self._content[offset : offset + len(buffer)]
        assert len(part) == len(buffer), "a parser reads beyond the end"
        buffer[:] = part
        self.bytes_read += len(part)
