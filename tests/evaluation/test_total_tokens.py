"""A suite's limit on all tokens: part of what results are of; older suites keep their hash."""

from __future__ import annotations

from palaestra.evaluation.running.suite import Entry, Limits, Suite, differences

ENTRIES = (Entry(environment="probe/umbrella-4", tasks=2),)
PLAIN = Suite(name="a", version=1, entries=ENTRIES)


def test_a_suite_without_the_limit_has_the_hash_that_it_had_before_there_was_one() -> None:
    known = "75a91f6d3ef0d7935c9dd755452dffb1645483900a01a710ea943f97330e9b24"
    assert PLAIN.hash == known


def test_suites_with_other_limits_of_tokens_do_not_compare() -> None:
    limited = Suite(name="a", version=1, entries=ENTRIES, limits=Limits(total_tokens=99))
    assert limited.hash != PLAIN.hash
    assert differences(PLAIN, limited) == ["limits.total_tokens None against 99"]
