"""The rules of mail: ids that sort, buckets, depth, and what a recipient is given."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import mail
from memory.mail import TERMS, Mail, MailTerms, MailType, Priority
from supervisor.gateway.admission.bucket import Bucket


def test_ids_sort_by_their_moment_and_are_plain_names() -> None:
    made = [mail.message_id(at, random.Random(at).randbytes(10)) for at in (0, 1, 1_700_000_000_000, 1_700_000_000_001, (1 << 48) - 1)]
    assert made == sorted(made) and all(len(one) == 26 and mail.is_id(one) for one in made)
    assert made[0].startswith("0000000000") and mail.message_id(1, bytes(10)) == "00000000010000000000000000"
    assert not any(map(mail.is_id, ("", "x", made[0].lower() + "u", made[0] + "\n", "../" + made[0][3:], made[0] + "0")))


@given(st.lists(st.floats(0, 30), max_size=60), st.integers(1, 12), st.floats(0.5, 20))
def test_the_bucket_that_is_counted_from_moments_is_the_one_that_is_kept(steps: list[float], burst: int, every_s: float) -> None:
    bucket, sent, now = Bucket(1 / every_s, burst, 0.0), list[float](), 0.0
    for step in steps:
        now += step
        wait_s = mail.again_in_s(sent, now, burst, every_s)
        assert wait_s == pytest.approx(bucket.wait_s(1.0, now), abs=1e-4)
        if not wait_s:
            bucket.take(1.0, now)
            sent.append(now)


def test_a_clock_that_was_ahead_holds_nobody_back_for_longer_than_a_bucket() -> None:
    assert mail.again_in_s([1e9] * 3, 100.0, 3, 20.0) == 20.0
    assert mail.again_in_s([1e9] * 2, 100.0, 3, 20.0) == 0.0


def test_why_a_message_may_not_be_sent_says_what_to_do() -> None:
    terms = MailTerms(pair_burst=2, pair_every_s=10, sender_burst=3, sender_every_s=5, depth_max=1)
    assert mail.why_not([], [], 1, 0.0, terms) == ("", "")
    assert mail.why_not([], [], 2, 0.0, terms)[0] == "its thread would be 2 replies deep, and 1 is the most"
    assert mail.why_not([0, 0], [0, 0], 0, 3.0, terms)[1] == "again in 7s, with all that is to be said in one"
    assert mail.why_not([], [0, 0, 0], 0, 3.0, terms) == ("3 messages, and then one each 5s", "again in 2s")


def one(name: str, priority: Priority = Priority.NORMAL, **facts: object) -> Mail:
    return Mail(name, "p", name, "r/a", "r/b", MailType.REQUEST, "which\nport?", 1.7e9, priority=priority, **facts)  # type: ignore[arg-type]  # passed through


def test_the_urgent_are_read_first_and_then_the_oldest() -> None:
    found = [one("1", Priority.LOW), one("2"), one("3", Priority.HIGH), one("4"), one("5", Priority.HIGH)]
    for order in itertools.islice(itertools.permutations(found), 20):
        assert [mail.id for mail in mail.by_urgency(order)] == ["3", "5", "2", "4", "1"]


def test_what_a_recipient_is_given_names_the_message_on_one_line() -> None:
    text = mail.notice(one("0A", needs_reply_by=1.7e9), "| the words")
    first, *rest = text.split("\n")
    assert first == "[nightcrew mail 0A] request from r/a: which\\nport?; a reply is needed by 2023-11-14T22:13:20.000Z"
    assert rest == ["| the words", 'Reply, if one is needed: "$NIGHTCREW_AGENT" mail reply 0A TEXT']
    assert "Reply" not in mail.notice(Mail("0A", "p", "0A", "unknown", "r/b", MailType.INFO, "x", 1.0), "| y")


def test_overdue_is_a_reply_that_was_needed_and_did_not_come() -> None:
    asked = one("1", needs_reply_by=100.0)
    assert [asked.shape(now, answered=answered)["overdue"] for now in (99, 101) for answered in (False, True)] == [
        False,
        False,
        True,
        False,
    ]
    assert mail.tokens("x" * 36) == 10 and mail.tokens("") == 0 and TERMS.depth_max == 8
