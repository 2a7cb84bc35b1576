"""Finding notes by what they mean: an extra, `nightcrew[semantic]`, that needs no network. Without it `load` gives None.

The model is the table of word vectors in the package wordllama: its loader looks for the tokenizer at a path that the package does not
have, and then wants to download it, so that the two files are read here directly, and nothing of the package is imported.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

WEIGHTS = Path("weights/l2_supercat_256.safetensors")
TOKENIZER = Path("tokenizers/l2_supercat_tokenizer_config.json")
TEXT_MAX = 8 * 2**10
"""Characters of a text that count: more blur its mean."""
_HEAD_MAX = 2**20


class Model:
    """Turns text into vectors of length 1. Loading takes a fifth of a second and 17 MB; a text some 0.1 ms."""

    def __init__(self, numpy: Any, tokenizer: Any, table: Any) -> None:
        self.numpy = numpy
        self._tokenizer = tokenizer
        self._table = table

    @property
    def width(self) -> int:
        """Of a vector."""
        return int(self._table.shape[1])

    def embed(self, texts: Sequence[str]) -> Any:
        """One row a text: the mean of its words' vectors."""
        numpy = self.numpy
        rows = numpy.zeros((len(texts), self.width), numpy.float32)
        clean = [text[:TEXT_MAX].encode("utf-8", "replace").decode() for text in texts]
        for row, encoded in zip(rows, self._tokenizer.encode_batch(clean, add_special_tokens=False), strict=True):
            if encoded.ids:
                row += self._table[encoded.ids].astype(numpy.float32).sum(0)
                row /= numpy.linalg.norm(row) or 1.0
        return rows


class Vectors:
    """The vectors of the pages of one index, by their numbers."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.clear()

    def clear(self) -> None:
        """Hold none."""
        self._numbers: list[int] = []
        self._rows = self._model.numpy.zeros((0, self._model.width), self._model.numpy.float32)

    def add(self, texts: Sequence[tuple[int, str]]) -> None:
        """Hold these too."""
        if texts:
            self._numbers += [number for number, _ in texts]
            self._rows = self._model.numpy.concatenate([self._rows, self._model.embed([text for _, text in texts])])

    def remove(self, numbers: Iterable[int]) -> None:
        """Hold these no more."""
        gone = frozenset(numbers)
        if gone:
            kept = [at for at, number in enumerate(self._numbers) if number not in gone]
            self._numbers, self._rows = [self._numbers[at] for at in kept], self._rows[kept]

    def nearest(self, query: str, count: int) -> list[int]:
        """The numbers of those that mean most the same, the nearest first."""
        near = self._rows @ self._model.embed([query])[0]
        chosen = self._model.numpy.argsort(-near, kind="stable")[:count]
        return [self._numbers[at] for at in chosen if near[at] > 0]


def load() -> Model | None:
    """The model of the installed extra; None when a package of it is missing, or holds other files than we know. No network is used."""
    found = importlib.util.find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        return None
    root = Path(found.submodule_search_locations[0])
    try:
        import numpy
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(str(root / TOKENIZER))
        tokenizer.no_padding()
        return Model(numpy, tokenizer, _table(numpy, (root / WEIGHTS).read_bytes()))
    except (ImportError, OSError, ValueError, KeyError):
        return None


def _table(numpy: Any, raw: bytes) -> Any:
    """The one tensor of a safetensors file: eight bytes of length, a JSON head of that length, numbers. Raises ValueError, KeyError."""
    length = int.from_bytes(raw[:8], "little")
    if length > _HEAD_MAX:
        raise ValueError("not a safetensors file")
    shape = json.loads(raw[8 : 8 + length])["embedding.weight"]
    if shape["dtype"] != "F16":
        raise ValueError("not of half precision")
    first, end = shape["data_offsets"]
    return numpy.frombuffer(raw[8 + length + first : 8 + length + end], numpy.float16).reshape(shape["shape"])
