"""The requests of clients, and the building of the compiled one."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import zygote
from agents.zygote import client as python_client
from agents.zygote import lifecycle
from agents.zygote.lifecycle import NotARequest, Request, answer, read_request
from tests.agents.zygote.kit import write_request

WORD = st.binary(max_size=40).map(lambda data: data.replace(b"\0", b""))
REQUESTS = st.builds(
    Request,
    WORD.map(lambda data: b"/" + data),
    st.dictionaries(WORD.map(lambda data: data.replace(b"=", b"")).filter(bool), WORD, max_size=5),
)


@given(REQUESTS)
def test_a_request_is_read_back(request_: Request) -> None:
    assert read_request(write_request(request_)) == request_


@given(REQUESTS, st.data())
def test_a_part_of_a_request_is_none_yet(request_: Request, data: st.DataObject) -> None:
    whole = write_request(request_)
    assert read_request(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


@given(st.binary(max_size=300))
def test_other_bytes_are_refused_or_waited_for(data: bytes) -> None:
    with contextlib.suppress(NotARequest):
        read_request(data)


@pytest.mark.parametrize("body", [b"", b"dir=/x", b"cwd=/\0", b"dir=x\0", b"dir=\0", b"=\0"])
def test_a_whole_body_that_names_nothing_is_refused(body: bytes) -> None:
    with pytest.raises(NotARequest):
        read_request(len(body).to_bytes(4, sys.byteorder) + body)


def test_an_answer_has_one_size() -> None:
    assert {len(answer("no", "x" * 500)), len(answer("end", 3)), len(answer("no", "é" * 99))} == {lifecycle.ANSWER}


def test_both_clients_know_the_sizes() -> None:
    source = Path(zygote.__file__).with_name("client.c").read_text()
    assert "REQUEST_MAX = 128 * 1024, ANSWER = 128" in source
    assert (python_client._ANSWER, python_client._REQUEST_MAX) == (lifecycle.ANSWER, lifecycle.REQUEST_MAX) == (128, 128 * 1024)


def test_the_client_is_compiled_once(tmp_path: Path, compiled_client: Path) -> None:
    folder = tmp_path / "clients"
    folder.mkdir()
    first = zygote.build_client(folder)
    assert first is not None and os.listdir(folder) == [first.name] == [compiled_client.name]
    before = first.stat()
    assert zygote.build_client(folder) == first
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    first.write_bytes(b"broken")
    assert zygote.build_client(folder) == first
    assert first.stat().st_size > 1000


def test_without_a_compiler_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert zygote.build_client(tmp_path) is None
    cc = tmp_path / "bin" / "cc"
    cc.write_text("#!/bin/sh\nexit 1\n")
    cc.chmod(0o755)
    assert zygote.build_client(tmp_path) is None
    assert os.listdir(tmp_path) == ["bin"]


def test_where_nothing_can_be_linked_statically_it_is_linked_dynamically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.which("cc")
    if real is None:
        pytest.skip("there is no C compiler")
    cc = tmp_path / "cc"
    cc.write_text(f'#!/bin/sh\ncase "$*" in *-static*) exit 1;; esac\nexec {real} "$@"\n')
    cc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    built = zygote.build_client(tmp_path)
    assert built is not None and b"ld-linux" in built.read_bytes()
