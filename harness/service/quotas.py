"""Limit what the jobs of a token may spend on models: the sum of their budgets in 24 hours."""

from __future__ import annotations

import sqlalchemy as sa

from harness.database.engine import database_time
from harness.database.schema import jobs, tokens
from harness.service.job import JobStatus, QueueError, QueueErrorCode

DAY_S = 86_400.0


def require_quota(connection: sa.Connection, owner: str, budget_usd: float | None) -> None:
    """Raise QueueError unless a job with this budget is within its owner's quota.

    Counted are the budgets of the owner's jobs of the last 24 hours, except those cancelled before they began.
    """
    # Locked, so that two requests at the same time do not both see what is left.
    quota = connection.scalar(sa.select(tokens.c.usd_per_day).where(tokens.c.id == owner).with_for_update())
    if quota is None:
        return
    now = database_time(connection)
    has_begun = (jobs.c.status != JobStatus.CANCELLED) | jobs.c.started_at.is_not(None)
    recent = sa.select(sa.func.coalesce(sa.func.sum(jobs.c.usd), 0.0))
    recent = recent.where(jobs.c.owner == owner, jobs.c.created_at > now - DAY_S, has_begun)
    left = quota - float(connection.scalar(recent) or 0.0)
    if budget_usd is None:
        message = f"the token has a quota: set budget_usd, at most {max(0.0, left):.2f} now"
        raise QueueError(message, code=QueueErrorCode.NO_BUDGET)
    if budget_usd > left:
        message = f"{max(0.0, left):.2f} USD of the token's quota of {quota:g} USD in 24 hours are left"
        raise QueueError(message, code=QueueErrorCode.QUOTA)
