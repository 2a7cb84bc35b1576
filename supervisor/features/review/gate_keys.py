"""The keys of the runs in which gates of trains run. By itself, since every list of tasks asks which they are."""

GATE_KEYS = "train/*/gate/*"
"""The keys of runs that `gate_key` makes, as a pattern of SQLite's GLOB."""


def gate_key(train: str, number: int) -> str:
    """The key of the run in which a gate of a train runs: submitted twice, it is one."""
    return f"train/{train}/gate/{number}"


def train_of(key: str) -> str:
    """The train in whose `gate_key` it is."""
    return key.removeprefix("train/").partition("/gate/")[0]
