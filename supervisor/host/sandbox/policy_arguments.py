"""A policy as flat words: what `main.py` gets on its command line, and what `namespaces.enter` carries out."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_LENGTHS = {"--ro": 2, "--rw": 2, "--device": 2, "--hide": 1, "--mask": 1, "--overlay": 2, "--own-network": 0, "--gateway": 2, "--proxy": 2}


class PolicyArguments:
    """What to do, in a form that costs nothing to import."""

    def __init__(self) -> None:
        self.mounts: list[tuple[str, str, str]] = []
        """(`ro`, `rw`, `device`, `hide` or `mask`; path; source, empty for the last two)"""
        self.overlay: tuple[str, str] | None = None
        """A directory, and the options of what is mounted there first."""
        self.own_network = False
        self.gateway: tuple[int, str] | None = None
        """Port inside, and the socket it leads to."""
        self.proxy: tuple[int, tuple[str, ...]] | None = None
        """Port inside, and the hosts that may be reached."""

    @property
    def ports(self) -> list[int]:
        """Where the loopback inside must answer, in the order in which the loopback proxy expects their sockets."""
        return [door[0] for door in (self.gateway, self.proxy) if door is not None]


def parse(words: "Sequence[str]") -> tuple[PolicyArguments, list[str]]:
    """The orders, and what follows `--`. Raises ValueError with the word that is wrong."""
    orders, at = PolicyArguments(), 0
    while at < len(words) and words[at] != "--":
        word = words[at]
        values = words[at + 1 : at + 1 + _LENGTHS.get(word, 0)]
        if word not in _LENGTHS or len(values) < _LENGTHS[word]:
            raise ValueError(f"not an order: {word}")
        _take(orders, word, values)
        at += 1 + len(values)
    return orders, list(words[at + 1 :])


def _take(orders: PolicyArguments, word: str, values: "Sequence[str]") -> None:
    if word == "--own-network":
        orders.own_network = True
    elif word == "--overlay":
        orders.overlay = values[0], values[1]
    elif word == "--gateway":
        orders.gateway = int(values[0]), values[1]
    elif word == "--proxy":
        orders.proxy = int(values[0]), tuple(values[1].split(","))
    else:
        orders.mounts.append((word[2:], values[0], values[1] if len(values) > 1 else ""))
