"""The runner's side of the files in an attempt's directory, all relative to the working directory.

`supervisor.core.records` owns the formats; this is the second writer and reader of them because importing `json` and `dataclasses`
costs the runner more than the rest of its start. `tests/agents/runner/test_records.py` holds the two together.
"""

# (pathlib costs more than this whole file, see agents/runner/main.py)

import os

_RESERVE = 4096  # bytes kept for exit.json, so that a disk that fills up later cannot swallow the record


class SpecError(Exception):
    """`launch.spec` is not what `supervisor.core.records.write_spec` writes."""


class Spec:
    """`launch.spec`, with paths and everything that is handed to `execve` still in bytes."""

    __slots__ = (
        "argv", "cores", "cwd", "env", "epoch", "gate", "gate_hold", "gate_timeout_s", "grace_s", "hint_socket", "hold", "idle", "join",
        "log_max", "mark", "mode", "nice", "policy", "quiet", "rlimits", "sentinel", "share", "stdin", "tag", "task", "timeout_s", "warm",
        "wrap",
    )  # fmt: skip

    def __init__(self, data: bytes) -> None:
        if not data.endswith(b"\0"):
            raise SpecError("it is cut short")
        many: dict[bytes, list[bytes]] = {}
        for entry in data[:-1].split(b"\0"):
            key, _, value = entry.partition(b"=")
            many.setdefault(key, []).append(value)
        try:
            one = {key: values[-1] for key, values in many.items()}
            self.task = _text(one[b"task"])
            self.epoch = int(one[b"epoch"])
            self.tag = one[b"tag"]
            self.argv = many[b"argv"]
            self.cwd = one[b"cwd"]
            self.mode = one[b"mode"]
            self.stdin = one[b"stdin"]
            self.timeout_s = float(one[b"timeout_s"])
            self.grace_s = float(one[b"grace_s"])
            self.log_max = int(one[b"log_max"])
            self.nice = int(one[b"nice"])
            self.mark = int(one[b"mark"])
            self.hint_socket = one[b"hint_socket"]
            self.hold = one[b"hold"]
            self.warm = one.get(b"warm") == b"True"  # these eleven are missing in what an older supervisor wrote
            self.idle = one.get(b"idle") == b"True"
            self.quiet = one.get(b"quiet") == b"True"
            self.sentinel = one.get(b"sentinel", b"")
            self.policy = one.get(b"policy", b"")
            self.wrap = many.get(b"wrap", [])
            self.join = many.get(b"join", [])
            self.gate = many.get(b"gate", [])
            self.gate_timeout_s = float(one.get(b"gate_timeout_s", b"0"))
            self.gate_hold = one.get(b"gate_hold", b"")
            self.share = many.get(b"share", [])
            self.env = dict(_pair(text) for text in many.get(b"env", []))
            self.cores = [int(text) for text in many.get(b"core", [])]
            self.rlimits = [(name.decode("ascii"), int(number)) for name, number in map(_pair, many.get(b"rlimit", []))]
        except KeyError as missing:
            raise SpecError(f"it has no entry {missing}") from None
        except ValueError as wrong:
            raise SpecError(str(wrong)) from None

    def of_gate(self) -> "Spec":
        """The same for the gate's command."""
        made = Spec.__new__(Spec)
        for name in Spec.__slots__:
            setattr(made, name, getattr(self, name))
        made.argv, made.timeout_s, made.mode, made.stdin, made.warm = self.gate, self.gate_timeout_s, b"headless", b"", False
        return made

    @property
    def headless(self) -> bool:
        return self.mode != b"terminal"

    @property
    def detached(self) -> bool:
        """Return whether the agent runs without a controlling terminal, so that no program of its can ask a question there."""
        return self.mode == b"headless"

    @property
    def confined(self) -> bool:
        """Whether something stands between us and the agent that reports a signal n as the status 128+n."""
        return bool(self.policy or self.wrap)


def _pair(text: bytes) -> tuple[bytes, bytes]:
    name, _, value = text.partition(b"=")
    return name, value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def read_spec() -> Spec:
    """Raises OSError when the file cannot be read and SpecError when it is not whole."""
    handle = os.open("launch.spec", os.O_RDONLY | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        return Spec(file.read())


def to_json(value: object) -> str:
    """JSON of the few shapes our records have; everything outside printable ASCII is escaped, lone surrogates included."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return '"' + "".join(map(_escape, value)) + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_json(key)}: {to_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_json, value)) + "]"
    return repr(value)


def _escape(char: str) -> str:
    if " " <= char <= "~" and char not in '"\\':
        return char
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def write_started(shape: dict[str, object]) -> bool:
    """Write `started.json`; False when it exists already, and then nothing was touched.

    A hard link is both exclusive and whole: unlike O_EXCL alone, no reader and no crash can see a half-written file.
    """
    draft = f".started.{os.getpid()}"
    handle = _create(draft)
    try:
        _write_all(handle, to_json(shape).encode("ascii"))
        os.fsync(handle)
        os.link(draft, "started.json")
    except FileExistsError:
        return False
    finally:
        os.close(handle)
        os.unlink(draft)
    _sync_directory()
    return True


class ExitRecord:
    """The place of `exit.json`, reserved before the agent starts and filled when it ends."""

    __slots__ = ("_draft", "_handle")

    def __init__(self) -> None:
        self._draft = f".exit.{os.getpid()}"
        self._handle = _create(self._draft)
        _write_all(self._handle, b" " * _RESERVE)

    def discard(self) -> None:
        os.unlink(self._draft)

    def write(self, shape: dict[str, object]) -> None:
        """Publish the record: from the rename on, the attempt has ended."""
        text = to_json(shape).encode("ascii")
        os.lseek(self._handle, 0, os.SEEK_SET)
        _write_all(self._handle, text)
        os.ftruncate(self._handle, len(text))
        os.fsync(self._handle)
        os.rename(self._draft, "exit.json")
        _sync_directory()


def _create(name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _sync_directory() -> None:
    handle = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
