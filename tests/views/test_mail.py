"""What a person is asked by mail, in lines."""

from __future__ import annotations

from memory.mail import PERSON, Mail, MailType, all_asked


def mail(number: int, sender: str, subject: str, sent: float, kind: MailType = MailType.REQUEST) -> Mail:
    return Mail(f"{number:026}", "p", "", sender, PERSON, kind, subject, sent)


def test_requests_of_one_sender_are_one_line() -> None:
    flood = [mail(number, "r/flood", f"question {number}\x1b", 100.0 + number) for number in range(10)]
    other = mail(11, "r/other", "which port?", 50.0)
    assert all_asked([*flood, other], 400.0) == [
        "? mail      000011  from r/other  which port?; nightcrew mail reply 000011 TEXT",
        "? mail      10 requests of r/flood, the oldest 5m: question 0\\x1b; nightcrew mail ls",
    ]
    both = [flood[0], mail(12, "r/flood", "take over", 200.0, MailType.HANDOFF)]
    assert all_asked(both, 400.0)[0].startswith("? mail      2 requests and handoffs of r/flood, the oldest 5m: ")
    assert all_asked([], 0.0) == []
