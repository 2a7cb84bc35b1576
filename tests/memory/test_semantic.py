"""Finding notes by what they mean, with the model that is in the extra; and that it asks no network."""

from __future__ import annotations

import importlib.util
import socket

import pytest

from memory import semantic
from memory.note import pages
from memory.search import Index, fused
from memory.semantic import Vectors


def no_network(*_: object, **__: object) -> None:
    raise AssertionError("it must not ask the network")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> semantic.Model:
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    found = semantic.load()
    if found is None:
        pytest.skip("the extra nightcrew[semantic] is not installed")
    return found


def test_what_means_the_same_is_near(model: semantic.Model) -> None:
    one, same, other = model.embed(["remove the directory", "delete a folder", "the price of tokens"])
    assert one @ same > one @ other and abs(float(one @ one) - 1) < 1e-3
    assert model.embed(["", "\ud800", "🦀" * 9000]).shape == (3, model.width)


def test_an_index_with_it_follows_its_files(model: semantic.Model) -> None:
    index = Index(Vectors(model))
    index.rebuild([*pages("semantic/a.md", "How to delete a folder", 0.0), *pages("semantic/b.md", "Prices of tokens", 0.0)])
    assert index.search("removing directories")[0].path == "semantic/a.md", "no word in common"
    index.update("semantic/a.md", [])
    assert [hit.path for hit in index.search("removing directories")] in ([], ["semantic/b.md"])


def test_without_the_extra_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert semantic.load() is None


def test_two_rankings_become_one() -> None:
    both = fused((([1, 2, 3], 1.0), ([3, 1], 0.5)))
    assert sorted(both, key=lambda number: -both[number]) == [1, 3, 2]
