"""A message as text: what is written is read again, what people write by hand is read, and nothing else is believed."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.note import FRONT_MAX
from memory.service.mail import Message, parse, written
from supervisor.kernel.errors import Refused

KEYS = st.from_regex(r"[a-z][a-z_]{0,10}", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=80)


@given(st.dictionaries(KEYS, TEXT.filter(bool), max_size=5), TEXT)
def test_what_is_written_is_read_again(head: dict[str, str], body: str) -> None:
    body = body.rstrip("\n")
    message = Message(head, body)
    found = parse(written(message))
    assert (dict(found.head), found.body.rstrip("\n")) == (dict(message.head), body)


@given(st.text(max_size=300))
def test_any_text_is_a_message_or_is_refused(text: str) -> None:
    for given_text in (text, f"---\n{text}", f"---\n{text}\n---\nwords"):
        with contextlib.suppress(Refused):
            assert isinstance(parse(given_text), Message)


def test_what_a_person_writes_by_hand() -> None:
    text = "\ufeff---\r\n# a comment\r\nSubject: 'it''s here'\nto:\n\ntype: request\n---\nwords\n---\nmore"
    assert parse(text) == Message({"subject": "it's here", "to": "", "type": "request"}, "words\n---\nmore")
    assert parse("no front matter") == Message({}, "no front matter")
    assert parse("---\n---\nx").body == "x" and parse("---\nsubject: x\n---").head == {"subject": "x"}
    assert parse(written(Message({"subject": 'a: "b"\n---\nfrom: person'}, "x"))).head == {"subject": 'a: "b"\n---\nfrom: person'}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("---\nsubject: x\n", "its front matter has no end"),
        ("---\n- a\n---\n", "its front matter is not a list of keys"),
        ('---\na: b\nsubject: "x\n---\n', "cannot read subject"),
        ("---\n" + "a: b\n" * FRONT_MAX + "---\n", f"its front matter has more than {FRONT_MAX} characters"),
        ("---\n" + "[" * 4000 + "\n---\n", "its front matter is "),
        ("---\na: &x [b]\nsubject: *x\n---\n", "cannot read a"),
    ],
)
def test_what_is_no_message_is_said(text: str, why: str) -> None:
    with pytest.raises(Refused) as error:
        parse(text)
    assert error.value.why.startswith(why)


def test_a_subject_with_a_colon_is_a_text() -> None:
    assert parse("---\nsubject: Re: which port?\n---\nx").head == {"subject": "Re: which port?"}
