"""First tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

IDENTITY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    _create_runs()
    _create_checkpoints()
    _create_series()
    _create_findings()
    _create_status()


def downgrade() -> None:
    for table in (
        "status",
        "findings",
        "samples",
        "series",
        "metrics",
        "checkpoints",
        "attempts",
        "runs",
    ):
        op.drop_table(table)


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", IDENTITY, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("name", name="uq_runs_name"),
    )
    op.create_table(
        "attempts",
        sa.Column("id", IDENTITY, nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("opened_at", TIME, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_attempts"),
        sa.UniqueConstraint("run_id", "ordinal", name="uq_attempts_run_id_ordinal"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_attempts_run_id"),
    )


def _create_checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("attempt_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("seen_at", TIME, nullable=False),
        sa.Column("settled_at", TIME, nullable=True),
        sa.Column("bytes_read", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "step", name="pk_checkpoints"),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_checkpoints_attempt_id"),
    )


def _create_series() -> None:
    op.create_table(
        "metrics",
        sa.Column("name", NAME, nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_metrics"),
    )
    key = ("attempt_id", "metric", "role", "lag", "layer", "parameter", "unit")
    op.create_table(
        "series",
        sa.Column("id", IDENTITY, nullable=False),
        sa.Column("attempt_id", sa.BigInteger(), nullable=False),
        sa.Column("metric", NAME, nullable=False),
        sa.Column("role", NAME, nullable=False),
        sa.Column("lag", sa.BigInteger(), nullable=False),
        sa.Column("layer", sa.BigInteger(), nullable=False),
        sa.Column("parameter", NAME, nullable=False),
        sa.Column("unit", NAME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_series"),
        sa.UniqueConstraint(*key, name=f"uq_series_{'_'.join(key)}"),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_series_attempt_id"),
    )
    op.create_table(
        "samples",
        sa.Column("series_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("base_step", sa.BigInteger(), nullable=True),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("series_id", "step", name="pk_samples"),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name="fk_samples_series_id"),
        sa.CheckConstraint("(value IS NULL) = (kind IN (1, 2, 3, 4))", name="ck_samples_value_or_kind"),
        sqlite_with_rowid=False,
    )


def _create_findings() -> None:
    key = ("attempt_id", "rule", "subject", "step")
    op.create_table(
        "findings",
        sa.Column("id", IDENTITY, nullable=False),
        sa.Column("attempt_id", sa.BigInteger(), nullable=False),
        sa.Column("rule", NAME, nullable=False),
        sa.Column("subject", NAME, nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("layer", sa.BigInteger(), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("found_at", TIME, nullable=False),
        sa.Column("announced_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_findings"),
        sa.UniqueConstraint(*key, name=f"uq_findings_{'_'.join(key)}"),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_findings_attempt_id"),
    )
    waiting = sa.text("announced_at IS NULL")
    op.create_index(
        "ix_findings_unannounced", "findings", ["id"], sqlite_where=waiting, postgresql_where=waiting
    )


def _create_status() -> None:
    op.create_table(
        "status",
        sa.Column("component", NAME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("healthy", sa.Boolean(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("component", name="pk_status"),
    )
