"""The shapes of models, from which their memory follows: a small table, and what a GGUF file says of its model."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

from supervisor.kernel.errors import ConfigError

_SHAPE = ("layers", "kv_heads", "head_dim")
MODELS = {"llama-3-8b": (8.03, 32, 8, 128), "llama-3-70b": (70.55, 80, 8, 128), "qwen3-1.7b": (1.72, 28, 8, 128)}
"""Billions of weights, and `_SHAPE`, as of 2026-11-28. Not checked: as their makers publish them."""
_SCALARS = "BbHhIif?  Qqd"
"""The struct format of each type of a value, by its number."""
_STRING, _ARRAY = 8, 9


def shape(model: str) -> dict[str, float]:
    """Return the premises of a model of the table, or of a GGUF file. Raises ConfigError for a file that is none.

    The format is that of docs/gguf.md of github.com/ggml-org/ggml. A layer with a sliding window keeps less than this says.
    """
    if model in MODELS:
        return dict(zip(("billions", *_SHAPE), MODELS[model], strict=True))
    path = Path(model)
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError("it does not begin with GGUF")
            _, _, count = _read(file, "<IQQ")
            facts = {_string(file): _value(file, *_read(file, "<I")) for _ in range(count)}
        of = f"{facts['general.architecture']}."
        heads, layers = facts[f"{of}attention.head_count"], facts[f"{of}block_count"]
        kv_heads = facts.get(f"{of}attention.head_count_kv", heads)
        dimension = facts.get(f"{of}attention.key_length") or facts[f"{of}embedding_length"] / heads
        mean = sum(kv_heads) / layers if isinstance(kv_heads, list) else kv_heads
        return dict(zip(("weights", *_SHAPE), (path.stat().st_size / 1e9, layers, mean, dimension), strict=True))
    except (OSError, ValueError, KeyError, IndexError, TypeError, struct.error) as error:
        raise ConfigError("cannot read the model's shape", on=model, why=str(error), hint="--weights, --layers and what follows") from None


def _read(file: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _string(file: BinaryIO) -> str:
    return file.read(*_read(file, "<Q")).decode("utf-8", "replace")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        of, count = _read(file, "<IQ")
        return [_value(file, of) for _ in range(count)]
    return _read(file, f"<{_SCALARS[kind]}")[0]
