"""What numbers in a request may be, and how much a reply may hold."""

from __future__ import annotations

MAX_STEP = 2**63 - 1
MAX_ORDINAL = 2**31 - 1

MAX_SERIES = 100
MAX_SERIES_READ = 1000
"""Pages further back would make the database read all series before them: narrow the filters instead."""

MAX_POINTS = 11_000
MAX_POINTS_PER_REPLY = 80_000
"""About 5 MB of JSON; many series in one reply get fewer points each."""
