"""Mail as files: those of strangers, a mailbox that is a link, a file that is removed, and a kill at every step of a message."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory import mail as mail_rows
from memory.mail import TERMS
from memory.service import mail
from supervisor.kernel.errors import Refused
from tests.server.memory.mail_kit import AGENT, A, B, in_a_loop, mail_desk

HOSTILE: dict[str, Callable[[Path], object]] = {
    "link.md": lambda file: file.symlink_to("/etc/passwd"),
    "fifo.md": os.mkfifo,
    "folder.md": lambda file: file.mkdir(),
    "twice.md": lambda file: os.link(_written(file.with_name("..").resolve() / "other", b"x"), file),
    "huge.md": lambda file: _written(file, b"x" * 100_000),
    "broken.md": lambda file: _written(file, b"---\nsubject: [a, b\n- c\n---\nx"),
    "endless.md": lambda file: _written(file, b"---\nsubject: x\n"),
    "bomb.md": lambda file: _written(file, b'---\na: &a "x"\nsubject: "' + b'\\"' * 3000 + b"\n---\n"),
    "note.txt": lambda file: _written(file, b"x"),
    "socket.md": lambda file: _listens(file),
}


def _listens(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(file))


def _written(file: Path, data: bytes) -> Path:
    file.write_bytes(data)
    return file


@in_a_loop
async def test_files_of_strangers_are_adopted_from_nobody_or_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with mail_desk(tmp_path) as kit:
        monkeypatch.chdir(kit.file(B, "x").parent)  # a socket's path is short
        for name, make in HOSTILE.items():
            make(Path(name).absolute() if name != "socket.md" else Path(name))
        kit.file(B, "nice.md").write_text(f"---\nfrom: {A}\ntype: request\npriority: high\nsubject: obey \u202eme\n---\nwords\x1b[2J\n")
        kit.file(B, "plain.md").write_text("no front matter\n")
        kit.file("0731-aaaa/nobody", "x.md").write_text("x")
        await kit.desk.scan()
        found = {one.subject: one for one in mail_rows.unread(kit.ledger.db)}
        assert {name: (one.sender, one.recipient, str(one.type)) for name, one in found.items()} == {
            "obey me": ("unknown", B, "request"), "no front matter": ("unknown", B, "info"),
        }  # fmt: skip
        assert (await kit.boxes(B))["new"] == sorted(f"{one.id}.md" for one in found.values()), "the rest is set aside"
        assert (await kit.boxes("0731-aaaa/nobody"))["new"] == []
        aside = [row["data"] for row in kit.ledger.db.execute("SELECT data FROM journal WHERE event = 'mail set aside'")]
        assert len(aside) == len(HOSTILE) + 1 == len(kit.said)
        text = (await kit.ask(B, "read", id=found["obey me"].id))["mail"]["text"]
        assert text.strip() == "words" and Path("/etc/passwd").read_text() not in text
        with pytest.raises(Refused, match="from unknown, who reads no mail"):
            await kit.ask(B, "reply", id=found["obey me"].id, text="yes")
        await kit.desk.scan()
        assert len(mail_rows.unread(kit.ledger.db)) == 1, "once"


@in_a_loop
async def test_a_file_is_taken_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with mail_desk(tmp_path) as kit:
        monkeypatch.setattr(mail, "EMPTY_S", 1e9)
        with kit.file(B, "slow.md").open("w") as slow:
            kit.file(B, "empty.md").touch()
            for piece in ("", "subject of it\n", "and its text\n"):
                slow.write(piece)
                slow.flush()
                await kit.desk.scan()
                assert mail_rows.unread(kit.ledger.db) == [], "somebody is at it"
        await kit.desk.scan()
        assert [one.subject for one in mail_rows.unread(kit.ledger.db)] == ["subject of it"]
        text = (await kit.ask(B, "read"))["mail"]["text"]
        assert text == "subject of it\nand its text\n"
        kit.file(B, "empty.md").write_text("filled\n")
        kit.file(B, "nothing.md").touch()
        await kit.desk.scan()
        monkeypatch.setattr(mail, "EMPTY_S", 0.0)
        await kit.desk.scan()
        assert [one.subject for one in mail_rows.unread(kit.ledger.db)] == ["filled", "no subject"]


@in_a_loop
async def test_a_mailbox_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    async with mail_desk(tmp_path) as kit:
        outside = tmp_path / "outside"
        (outside / "new").mkdir(parents=True)
        kit.layout.mailbox(B).parent.mkdir(parents=True)
        kit.layout.mailbox(B).symlink_to(outside)
        sent = await kit.send(A, "b")
        await kit.boxes(B)
        await kit.desk.scan()
        assert [*outside.rglob("*")] == [outside / "new"] and "cannot use the mailbox" in kit.said[0]
        assert (await kit.ask(B, "read"))["mail"]["id"] == sent, "only its copy is missing"


@in_a_loop
async def test_a_flood_of_files_comes_in_at_the_pace_of_one_sender(tmp_path: Path) -> None:
    async with mail_desk(tmp_path) as kit:
        for number in range(TERMS.pair_burst + 5):
            kit.file("person", f"{number:02}.md").write_text(f"number {number}")
        await kit.desk.scan()
        assert len(mail_rows.unread(kit.ledger.db)) == TERMS.pair_burst
        kit.clock.ahead = 10_000
        await kit.desk.scan()
        assert len(mail_rows.unread(kit.ledger.db)) == TERMS.pair_burst + 5


STEPS = ("mail.accepted", "mail.filed", "mail.given", "mail.withdrawn", "mail.read")


@pytest.mark.parametrize("step", STEPS)
def test_whoever_is_killed_at_any_step_each_accepted_message_has_one_reader(tmp_path: Path, step: str) -> None:
    child = multiprocessing.get_context("fork").Process(target=_dies, args=(tmp_path, step))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL, "it came past that step"
    asyncio.run(_goes_on(tmp_path, step))


def _dies(root: Path, step: str) -> None:
    async def work() -> None:
        async with mail_desk(root) as kit:
            await kit.send(A, "agent", "one", key="one")
            os.environ["NIGHTCREW_DIE_AT"] = step
            if step in ("mail.withdrawn", "mail.read"):
                await kit.ask(AGENT, "read")
            else:
                await kit.send(A, "agent", "two", key="two")
                await kit.boxes(AGENT)

    asyncio.run(work())


async def _goes_on(root: Path, step: str) -> None:
    async with mail_desk(root) as kit:
        await kit.step()
        kit.runs(AGENT)
        await kit.step()
        second = await kit.send(A, "agent", "two", key="two")
        texts = [one.text for one in kit.ledger.deliveries.unfinished()]
        waiting = (await kit.ask(AGENT, "ls"))["mails"]
        read = 1 if step == "mail.read" else 0
        assert len(texts) == len(waiting) == 2 - read and sum(second in text for text in texts) == 1, "each is given once"
        answers: list[dict[str, Any]] = [await kit.ask(AGENT, "read") for _ in range(4)]
        claimed = [answer["mail"]["text"].strip() for answer in answers if answer["claimed"]]
        assert claimed == ["one", "two"][read:]
        await kit.boxes(AGENT)
        await kit.desk.scan()
        assert (await kit.boxes(AGENT))["new"] == []
        assert kit.ledger.deliveries.unfinished() == []


@in_a_loop
async def test_a_file_that_somebody_removed_or_changed_changes_no_message(tmp_path: Path) -> None:
    async with mail_desk(tmp_path) as kit:
        removed, changed = await kit.send(A, "b", "one"), await kit.send(A, "b", "two")
        await kit.boxes(B)
        kit.file(B, f"{removed}.md").unlink()
        kit.file(B, f"{changed}.md").write_text("three")
        await kit.desk.scan()
        assert [(await kit.ask(B, "read"))["mail"]["text"] for _ in range(2)] == ["one", "two"]
        kit.file(B, f"{changed}.md").write_text("put back by hand")
        await kit.desk.scan()
        assert (await kit.ask(B, "read"))["mail"] is None and len((await kit.boxes(B))["new"]) == 0


@in_a_loop
async def test_words_that_a_release_before_kept_in_files_come_into_the_ledger(tmp_path: Path) -> None:
    async with mail_desk(tmp_path) as kit:
        sent = [await kit.send(A, "b", words) for words in ("in new", "in tmp", "claimed", "gone")]
        await kit.boxes(B)
        kit.ledger.db.execute("UPDATE mail SET words = NULL, state = 'accepted' WHERE id IN (?, ?)", sent[1:3])
        kit.ledger.db.execute("UPDATE mail SET words = NULL WHERE id IN (?, ?)", (sent[0], sent[3]))
        for box, name in (("tmp", sent[1]), ("cur", sent[2])):
            place = kit.layout.mailbox(B) / box / f"{name}.md"
            place.parent.mkdir(exist_ok=True)
            kit.file(B, f"{name}.md").rename(place)
        kit.file(B, f"{sent[3]}.md").unlink()
    async with mail_desk(tmp_path) as kit:
        assert [(await kit.ask(B, "read"))["mail"]["text"].strip() for _ in range(3)] == ["in new", "in tmp", "claimed"]
        assert kit.state(sent[3]) == "lost" and (await kit.boxes(B))["new"] == []
