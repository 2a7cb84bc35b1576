"""Read one TOML file into one model, with the line of every mistake."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from supervisor.kernel import codec
from supervisor.kernel.errors import ConfigError
from supervisor.kernel.format import many
from supervisor.kernel.names import nearest
from supervisor.kernel.path_globs import normalised

# Locate
# ------
# Where a key stands in a TOML file. `tomllib` gives no positions, and an error without a line makes a person search.
#
# This is a scanner of tokens, so what stands inside a string or a comment is never taken for a key. It expects text that `tomllib`
# has accepted; of other text it makes what it can.


_TOKEN = re.compile(
    r'''
      (?P<text> """ (?:[^\\]|\\.)*? """ "{0,2} | \'\'\' .*? \'\'\' '{0,2} | " (?:[^"\\\n]|\\.)* " | ' [^'\n]* ' )
    | (?P<bare> [A-Za-z0-9_+:-]+ )
    | (?P<mark> [\[\]{}=.,\n] )
    | \#[^\n]* | .                  # a comment, a blank, or no TOML at all
    ''',
    re.VERBOSE | re.DOTALL,
)

LocatePath = Sequence[str | int]


def line_of(text: str, path: LocatePath) -> int:
    """The 1-based line of the deepest part of `path` that is written down; 1 when none is."""
    best, best_depth = 1, 0
    for line, here in _Scan(text).found:
        depth = _common(here, path)
        if depth > best_depth:
            best, best_depth = line, depth
    return best


def longest_key(text: str) -> tuple[int, int]:
    """How many dotted parts the longest key has, and its line. A fraction counts as two parts, a date as one."""
    longest, where, parts, dotted = 0, 1, 0, False
    for kind, word, line in _tokens(text):
        if kind == "mark":
            dotted = word == "."
        else:
            parts, dotted = parts + 1 if dotted else 1, False
            if parts > longest:
                longest, where = parts, line
    return longest, where


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    line = 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup is not None:
            yield match.lastgroup, match.group(), line
        line += match.group().count("\n")


def _common(here: LocatePath, path: LocatePath) -> int:
    same = 0
    for one, other in zip(here, path, strict=False):
        if one != other:
            break
        same += 1
    return same


class _Scan:
    """Walks the tokens once; `found` is every header, key and element of an array with its line and its full path."""

    def __init__(self, text: str) -> None:
        self.found: list[tuple[int, list[str | int]]] = []
        self._tokens = list(_tokens(text))
        self._at = 0
        self._table: list[str | int] = []
        self._newest: dict[tuple[str | int, ...], int] = {}
        """Path of each array of tables, and the index of its newest element."""
        while self._more():
            if self._take("["):
                self._header()
            elif not self._take("\n"):
                self._pair(self._table)

    def _more(self) -> bool:
        return self._at < len(self._tokens)

    def _take(self, mark: str) -> bool:
        found = self._more() and self._tokens[self._at][:2] == ("mark", mark)
        self._at += found
        return found

    def _note(self, path: list[str | int]) -> None:
        self.found.append((self._tokens[self._at][2], path))

    def _header(self) -> None:
        many = self._take("[")
        line = self._tokens[self._at - 1][2]
        name = self._key()
        self._table = []
        for number, part in enumerate(name, 1):
            self._table.append(part)
            here = tuple(self._table)
            if many and number == len(name):
                self._newest[here] = self._newest.get(here, -1) + 1
            if here in self._newest:
                self._table.append(self._newest[here])
        self.found.append((line, self._table))
        while self._more() and not self._take("\n"):
            self._at += 1

    def _key(self) -> list[str]:
        parts: list[str] = []
        while self._more() and self._tokens[self._at][0] != "mark":
            kind, token, _ = self._tokens[self._at]
            parts.append(_unquoted(token) if kind == "text" else token)
            self._at += 1
            if not self._take("."):
                break
        return parts

    def _pair(self, table: list[str | int]) -> None:
        start = self._at
        path = [*table, *self._key()]
        if self._take("=") and self._more():
            self.found.append((self._tokens[start][2], path))
            self._value(path)
        else:
            self._at += 1

    def _value(self, path: list[str | int]) -> None:
        if self._take("["):
            self._array(path)
        elif self._take("{"):
            while self._more() and not self._take("}"):
                if not (self._take(",") or self._take("\n")):
                    self._pair(path)
        else:
            self._at += 1
            while self._more() and self._tokens[self._at][1] not in (",", "]", "}", "\n"):
                self._at += 1

    def _array(self, path: list[str | int]) -> None:
        index = 0
        while self._more() and not self._take("]"):
            if self._take(","):
                index += 1
            elif not self._take("\n"):
                self._note([*path, index])
                self._value([*path, index])


def _unquoted(token: str) -> str:
    if "\\" not in token:
        return token[1:-1]
    try:
        return str(tomllib.loads(f"key = {token}")["key"])
    except tomllib.TOMLDecodeError:
        return token


# Reading
# -------
# Reading one TOML file into one pydantic model, with errors a person can act on.


MAX_BYTES = 1_000_000
"""A plan of 10,000 tasks with prompts in files fits; a 50 MB file is a mistake and is refused before it is parsed."""
MAX_PARTS = 32
"""Of a dotted key. Our deepest has 3; `tomllib` takes time by the square of their number, minutes for a file full of `a.a.a`."""
MAX_INT = 2**63 - 1
"""Of a number in TOML, and of what the kernel takes as a limit."""


class Strict(BaseModel):
    """Base of every file model: unknown keys are errors, numbers must be finite, and types are not guessed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


M = TypeVar("M", bound=BaseModel)


T = TypeVar("T")


def into(kind: type[T], /, *models: BaseModel, **more: Any) -> T:
    """What models say, as the dataclass `kind` has it: by the names of its fields, which may end in `_s`. None leaves a default."""
    shape = more
    for name in kind.__dataclass_fields__:  # type: ignore[attr-defined]  # of every dataclass
        for model in models:
            value = getattr(model, name, None)
            value = getattr(model, name.removesuffix("_s"), None) if value is None else value
            if value is not None:
                shape.setdefault(name, value)
    return codec.load(kind, shape)


class Once:
    """Files that are read once at most: whoever asks again gets the same bytes, or the same error, whatever lies there by now. So what was
    hashed is what is parsed."""

    def __init__(self) -> None:
        self._found: dict[str, bytes | OSError | ValueError] = {}

    def raw(self, path: Path) -> bytes:
        """The file, cut after MAX_BYTES + 1. Raises OSError, and ValueError for a NUL in the path."""
        name = os.fspath(path)
        if name not in self._found:
            self._found[name] = _raw(path)
        found = self._found[name]
        if not isinstance(found, bytes):
            raise found
        return found

    def digests(self) -> dict[str, str]:
        """SHA-256 of every file that was asked for, by its path; empty for one that could not be read."""
        return {name: hashlib.sha256(raw).hexdigest() if isinstance(raw, bytes) else "" for name, raw in self._found.items()}


def _raw(path: Path) -> bytes | OSError | ValueError:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        return error


def read_text(path: Path, *, empty: bool = False, files: Once | None = None) -> str:
    """The file as text, as `files` has it. Raises ConfigError: it cannot be read, is too large, is not UTF-8, or has no content and may not
    be `empty`."""
    try:
        raw = (files or Once()).raw(path)
    except FileNotFoundError:
        raise ConfigError("cannot read", on=str(path), why="there is no such file", hint="check the path") from None
    except OSError as error:
        raise ConfigError("cannot read", on=str(path), why=error.strerror or str(error)) from None
    except ValueError as error:  # a NUL in the path
        raise ConfigError("cannot read", on=str(path), why=str(error)) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError("cannot read", on=str(path), why=f"it is larger than {MAX_BYTES} bytes", hint="put long prompts into prompt_file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError("cannot read", on=f"{path}:{line}", why="it is not UTF-8 text", hint="save it as UTF-8") from None
    if not text.strip() and not empty:
        raise ConfigError("cannot read", on=str(path), why="it is empty")
    return text.replace("\r\n", "\n")


def parse(text: str, model: type[M], name: str) -> M:
    """`text` as `model`. Raises ConfigError that names `name:line`, the key, what is allowed and the nearest known name."""
    shape = _toml(text, name)
    try:
        return model.model_validate(shape)
    except ValidationError as error:
        raise _explain(error, text, shape, model, name) from None


def _toml(text: str, name: str) -> dict[str, Any]:
    if any(line.count(".") >= MAX_PARTS for line in text.splitlines()):
        parts, line = longest_key(text)
        if parts > MAX_PARTS:
            raise ConfigError("cannot read", on=f"{name}:{line}", why=f"a key of {parts} parts; the most that any key has is {MAX_PARTS}")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("cannot read", on=f"{name}:{_toml_line(str(error), text)}", why=f"not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError("cannot read", on=name, why="tables or arrays are nested too deeply") from None
    except ValueError:  # Python's own limit against numbers that take minutes to read
        line = next((number for number, line in enumerate(text.splitlines(), 1) if re.search(r"[0-9_]{4300}", line)), 1)
        raise ConfigError("cannot read", on=f"{name}:{line}", why="a number has more than 4300 digits") from None


def duration(value: Any) -> Any:
    """Seconds from `90`, `"90s"`, `"5m"`, `"2h"` or `"1d"`."""
    if isinstance(value, str):
        number, unit = value.strip()[:-1], value.strip()[-1:]
        seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(unit)
        if seconds is None or not _is_number(number):
            raise ValueError('a duration is a number of seconds or text such as "90s", "5m", "2h", "1d"')
        return float(number) * seconds
    if isinstance(value, int) and not isinstance(value, bool):
        return float(_in_range(value))
    return value


def size(value: Any) -> Any:
    """Bytes from `1024` or text such as `"64MiB"`, `"2GB"`, `"500k"`."""
    if isinstance(value, str):
        units = {"": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9}
        units |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "b": 1, "t": 10**12, "tb": 10**12}
        text = value.strip().lower()
        number = text.rstrip("kmgtib ")
        factor = units.get(text[len(number) :].strip())
        if factor is None or not _is_number(number):
            raise ValueError('a size is a number of bytes or text such as "64MiB" or "2GB"')
        return int(min(float(number) * factor, MAX_INT + 1))
    return value


def _in_range(number: int) -> int:
    if abs(number) > MAX_INT:
        raise ValueError("the number is too large")
    return number


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
Class = Literal["interactive", "normal", "batch"]
TaskSize = Literal["small", "medium", "large"]
Work = Literal["", "trivial", "simple", "complex"]


def _value(text: str) -> str:
    if not text.isprintable() or text[:1] in ("", "-", " "):
        raise ValueError("give one line that does not begin with '-' or a blank: it is the value of an option")
    return text


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("give one line of printable text")
    return text


def variable(name: str) -> str:
    """`name`, when an agent's environment may have a variable of that name. Raises ValueError."""
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of an environment variable")
    if name.startswith("NIGHTCREW_"):
        raise ValueError(f"{name}: names that begin with NIGHTCREW_ are nightcrew's own")
    return name


def _command(value: str | list[str]) -> str | list[str]:
    if not value or not "".join(value).strip():
        raise ValueError("a command must not be empty")
    if any("\0" in part for part in value):
        raise ValueError("a command cannot hold a NUL character")
    return value


OptionValue = Annotated[str, Field(max_length=1000), AfterValidator(_value)]
"""Of an option of an agent's."""
Variable = Annotated[str, AfterValidator(variable)]

Glob = Annotated[str, AfterValidator(normalised)]
"""A pattern of paths below the repository's root, in its normal form."""
"""Name of a variable that an agent's environment may have."""
Shown = Annotated[str, AfterValidator(_printable)]
Command = Annotated[str | list[str], AfterValidator(_command)]
"""Text for a shell, or the words of a command."""
Duration = Annotated[float, BeforeValidator(duration)]
Size = Annotated[int, BeforeValidator(size), Field(le=MAX_INT)]


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit() and text.isascii()


def _toml_line(message: str, text: str) -> int:
    _, found, rest = message.partition("(at line ")
    return int(rest.split(",")[0]) if found else text.count("\n") + 1


def _explain(error: ValidationError, text: str, shape: dict[str, Any], model: type[BaseModel], name: str) -> ConfigError:
    # A misspelt key that had to be given is two errors; the misspelling is the one to show.
    first = min(error.errors(include_url=False), key=lambda found: found["type"] == "missing")
    path = _written(first["loc"], shape, missing=first["type"] == "missing")
    keys = [part for part in path if isinstance(part, str)]
    others = error.error_count() - 1
    more = f" ({many(others, 'more mistake')})" if others else ""
    on = f"{name}:{line_of(text, path)}"
    if first["type"] == "extra_forbidden":
        return ConfigError("unknown key", on=f"{on} {keys[-1]}", why=nearest(keys[-1], _known(model, path[:-1])) + more)
    if first["type"] == "missing":
        return ConfigError("missing key", on=f"{on} {keys[-1]}", why="it must be given" + more)
    message = first["msg"].removeprefix("Value error, ")
    secret = keys[-1:] in (["key"], ["urls"])  # is never repeated
    given = "" if isinstance(first["input"], dict) or secret else f", not {_shown(first['input'])}"
    return ConfigError("bad value", on=f"{on} {'.'.join(keys)}".rstrip(), why=message + given + more)


def _written(location: tuple[str | int, ...], shape: Any, *, missing: bool) -> list[str | int]:
    """The part of pydantic's location that is in the file. Pydantic also names the member of a union that it tried (`int`, `list[int]`);
    only the file tells that from a key of that name."""
    path: list[str | int] = []
    for part in location:
        if part in (shape if isinstance(shape, dict) else range(len(shape)) if isinstance(shape, list) else ()):
            shape = shape[part]
            path.append(part)
    return [*path, location[-1]] if missing else path


def _shown(value: Any) -> str:
    try:
        return repr(value)[:80]
    except ValueError:  # a number of more than 4300 digits, written in hexadecimal
        return "such a long number"


def _known(model: type[BaseModel], path: list[str | int]) -> list[str]:
    """The key names allowed at `path` inside `model`."""
    here: Any = model
    named = False
    for part in path:
        if named or not isinstance(part, str) or not (isinstance(here, type) and issubclass(here, BaseModel)):
            named = False  # the name that a person gave a table, or a place in a list: the model is the same
            continue
        field = next((item for name, item in here.model_fields.items() if (item.alias or name) == part), None)
        here = inner_model(field.annotation) if field else None
        named = field is not None and get_origin(field.annotation) is dict
    if isinstance(here, type) and issubclass(here, BaseModel):
        return [item.alias or name for name, item in here.model_fields.items()]
    return []


def inner_model(annotation: Any) -> type[BaseModel] | None:
    """The model inside an annotation such as `dict[str, Model]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in getattr(annotation, "__args__", ()) if (found := inner_model(part))), None)
