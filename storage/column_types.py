"""Column types that behave the same on SQLite and PostgreSQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Integer, Text
from sqlalchemy.types import TypeDecorator

from foreshock.storage.values import moment

WHOLE = BigInteger()
IDENTITY = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite numbers rows by itself only where the key's type is spelled INTEGER."""

NAME = Text().with_variant(Text(collation="C"), "postgresql")
"""Ordered by code point, as SQLite and Python order text."""


class UtcTime(TypeDecorator[datetime]):
    """An instant: SQLite drops the time zone, so it goes in as UTC and comes out aware."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC; without its zone where the driver would only lose it."""
        if value is None:
            return None
        instant = moment(value)
        return instant.replace(tzinfo=None) if dialect.name == "sqlite" else instant

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC: PostgreSQL answers in the session's time zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


class JsonText(TypeDecorator[dict[str, Any]]):
    """A JSON object, plain already, as ASCII text: PostgreSQL's own JSON type refuses NaN and NUL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: dict[str, Any] | None, dialect: Dialect) -> str | None:
        """To text, with NaN and infinities as Python reads them back."""
        del dialect
        return None if value is None else json.dumps(value, ensure_ascii=True)

    def process_result_value(self, value: str | None, dialect: Dialect) -> dict[str, Any] | None:
        """To what it was."""
        del dialect
        if value is None:
            return None
        loaded: dict[str, Any] = json.loads(value)
        return loaded
