"""Instants and spans in microseconds."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import clock


@given(st.datetimes(timezones=st.just(UTC)))
def test_microseconds_are_exact_there_and_back(at):
    """A float of seconds has no room for microseconds far from 1970; two rooms rounded through one."""
    assert clock.from_us(clock.to_us(at)) == at


def test_the_origin_and_its_units():
    assert clock.to_us(datetime(1970, 1, 1, 0, 0, 1, 7, tzinfo=UTC)) == 1_000_007
    assert clock.to_us(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1
    assert clock.span_us(timedelta(seconds=2, microseconds=1)) == 2_000_001
    assert clock.from_us(1) == clock.EPOCH + clock.ONE_US
