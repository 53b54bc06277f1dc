"""An order of candidates that the end of the time has cut off is not taken for a complete one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.interrupts import TimeBudgetError


def ending(error: type[BaseException] | None) -> Iterator[Candidate]:
    if error is not None:
        raise error
    yield from ()


@pytest.mark.parametrize("error", [TimeBudgetError, None])
def test_only_an_order_that_ended_by_itself_is_complete(error: type[BaseException] | None) -> None:
    campaign = Campaign.__new__(Campaign)
    campaign._drawing, campaign._drawn, campaign._is_cut_off = threading.Lock(), [], False
    campaign._source = ending(error)
    if error is not None:
        with pytest.raises(error):
            campaign.candidate(0)
    assert campaign.candidate(0) is None
    assert campaign.is_complete([]) == (error is None)
