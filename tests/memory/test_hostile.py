"""What an agent can put in the place of a note is refused at once, with the reason, and nothing of it leaks (battery X07, X09)."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from memory.versions import PERSON
from memory.writing import Store
from supervisor.host import untrusted_fs
from supervisor.kernel.errors import Refused
from tests.memory.kit import FIX, TODAY, text_of

SECRET = "the person's own"


def link(place: Path, secret: Path) -> None:
    place.symlink_to(secret)


def hard_link(place: Path, secret: Path) -> None:
    os.link(secret, place)


def fifo(place: Path, secret: Path) -> None:
    os.mkfifo(place)


def directory(place: Path, secret: Path) -> None:
    place.mkdir()


def sparse(place: Path, secret: Path) -> None:
    place.touch()
    try:
        os.truncate(place, 200 * 2**30)
    except OSError:  # a file system without files of that size
        os.truncate(place, 2**30)


def unix_socket(place: Path, secret: Path) -> None:
    with socket.socket(socket.AF_UNIX) as held:
        here = os.open(place.parent, os.O_RDONLY)
        held.bind(f"/proc/self/fd/{here}/{place.name}")
        os.close(here)


def device(place: Path, secret: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    try:
        os.mknod(place, 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this root may make no devices")


def dangling(place: Path, secret: Path) -> None:
    place.symlink_to(secret.parent / "new")


WHY: dict[Callable[[Path, Path], None], str] = {hard_link: "it has 2 names", sparse: "are allowed"}
"""The reason is the trap's own. What is refused only as it is read, by the foreign door, is said to be exchanged all the time."""
TRAPS = (link, hard_link, fifo, directory, sparse, unix_socket, device, dangling)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    place = tmp_path / "secret"
    place.write_text(SECRET)
    return place


@pytest.mark.timeout(20)  # a pipe or a device would wait for ever
@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("path", ["semantic/a.md", TODAY])
def test_a_trap_is_refused_and_left(store: Store, root: Path, secret: Path, trap: Callable[[Path, Path], None], path: str) -> None:
    place = root / "memory" / path
    place.parent.mkdir()
    trap(place, secret)
    was = place.lstat()
    acts: list[Callable[[], object]] = [lambda: store.read(path)]
    if path == TODAY:
        acts.append(lambda: store.append({"text": "x"}, FIX))
    else:
        acts += [lambda: store.put(path, "x", FIX, if_version=None), lambda: store.put(path, "x", PERSON), lambda: store.remove(path, FIX)]
    for act in acts:
        with pytest.raises(Refused) as caught:
            act()
        assert WHY.get(trap, "and not a file") in caught.value.why
        assert SECRET not in caught.value.line()
    assert store.entries() == [] and [found for found, _ in store.strange()] == [path]
    assert store.found(path) is None
    assert secret.read_text() == SECRET and not (secret.parent / "new").exists()
    assert (place.lstat().st_ino, place.lstat().st_size) == (was.st_ino, was.st_size)
    assert store.remove(path, PERSON) == f"archive/{path}"
    assert not os.path.lexists(place)
    assert secret.read_text() == SECRET and store.strange() == []


def test_a_link_in_the_place_of_a_directory_is_not_followed(store: Store, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.md").write_text(SECRET)
    (root / "memory/semantic").symlink_to(outside)
    for act in (
        lambda: store.read("semantic/a.md"),
        lambda: store.put("semantic/b.md", "x", PERSON),
        lambda: store.remove("semantic/a.md", PERSON),
    ):
        with pytest.raises(Refused):
            act()
    assert sorted(path.name for path in outside.iterdir()) == ["a.md"] and (outside / "a.md").read_text() == SECRET
    assert store.entries() == [] and store.strange()[0][0] == "semantic"


def test_a_directory_that_is_swapped_all_the_time_leads_nowhere(store: Store, root: Path, tmp_path: Path) -> None:
    outside, memory = tmp_path / "outside", root / "memory"
    outside.mkdir()
    (outside / "a.md").write_text(SECRET)
    (memory / "semantic").mkdir()
    (memory / "link").symlink_to(outside)
    here, over = os.open(memory, os.O_RDONLY), threading.Event()

    def swap() -> None:
        while not over.is_set():
            assert untrusted_fs.exchange(here, "semantic", "link")

    swapper = threading.Thread(target=swap)
    swapper.start()
    done = refused = 0
    try:
        while done < 20 or refused < 20:
            try:
                store.put("semantic/a.md", f"text {done} {refused}", PERSON)
                found = store.read("semantic/a.md")
                assert found is None or SECRET not in found.text
                done += 1
            except Refused:
                refused += 1
    finally:
        over.set()
        swapper.join()
    assert sorted(path.name for path in outside.iterdir()) == ["a.md"] and (outside / "a.md").read_text() == SECRET
    if (memory / "semantic").is_symlink():
        untrusted_fs.exchange(here, "semantic", "link")
    os.close(here)
    store.put("semantic/a.md", "the last", PERSON)
    assert text_of(store, "semantic/a.md") == "the last"
