"""Which hosts can be named: what the proxy could let through, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.config import plan
from supervisor.config.task_keys import MAX_HOSTS, network, written
from supervisor.kernel.kind import Kind
from supervisor.sandbox import egress_proxy

LONG = ".".join(["a" * 63] * 3)


@pytest.mark.parametrize("name", ["pypi.org", "*.pythonhosted.org", "a.b-c.d0", "xn--bcher-kva.example", "3com.com", f"{LONG}.{'b' * 61}"])
def test_a_name_that_can_be_reached(name: str) -> None:
    found = network([name])
    assert found == (name,)
    assert egress_proxy.allowed(name.replace("*", "any").upper(), (name,))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("http://pypi.org", "not the name"), ("pypi.org:443", "not the name"), ("pypi.org/simple", "not the name"), ("", "not the name"),
        ("user@pypi.org", "not the name"), ("pypi.org.", "not the name"), (".pypi.org", "not the name"), ("pypi..org", "not the name"),
        ("*", "not the name"), ("*pypi.org", "not the name"), ("a.*.org", "not the name"), ("*.*.org", "not the name"),
        ("-a.org", "not the name"), ("a-.org", "not the name"), ("a_b.org", "not the name"), ("bücher.de", "not the name"),
        ("a.org\n", "not the name"), ("a.org,b.org", "not the name"), ("a\0.org", "not the name"), ("::1", "not the name"),
        (f"{'a' * 64}.org", "not the name"), (f"{LONG}.{'b' * 62}", "not the name"),
        ("127.0.0.1", "is an address"), ("*.0.1", "is an address"),
        ("localhost", "no host of the internet"), ("*.com", "no host of the internet"),
    ],
)  # fmt: skip
def test_a_name_that_can_not(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        network(["good.example", name])


def test_a_list_is_neither_empty_nor_endless() -> None:
    many = [f"h{number}.example" for number in range(MAX_HOSTS)]
    assert network(many) == tuple(many)
    for wrong in ([], [*many, "one.more"], {"a.org": True}, "a.org", 0, 1, None, [["a.org"]]):
        with pytest.raises(ValueError, match=r"list"):
            network(wrong)


def test_it_is_shown_as_it_is_written() -> None:
    assert [written(value) for value in (True, False, ("a.org",), ("a.org", "b.org"))] == ["true", "false", '["a.org"]', '["a.org", ...]']


def test_a_task_of_a_plan_has_its_own_or_those_of_all(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    shared = '[defaults]\nnetwork = ["PyPI.org", "*.pythonhosted.org", "pypi.org"]\n'
    file.write_text(f"{shared}[[tasks]]\ncommand = 'x'\n[[tasks]]\ncommand = 'x'\nnetwork = true\n")
    made = plan.load(file, {"shell": Kind("shell", "")})
    assert [task.network for task in made.tasks] == [("pypi.org", "*.pythonhosted.org"), True]
