"""A hook of an agent's command line, for machines without a C compiler: `client.c` says what it does.

Run as `python -I -S client.py EVENT`. C modules only: each tool call of the agent waits for this.
"""

import _socket
import posix
import sys
import time

_INPUT_MAX, _KEPT_MAX, _ANSWER_MAX = 192 * 1024, 4 * 2**20, 32 * 1024
_PATIENCE_S = 1.0
_USAGE = 64


def main() -> int:
    """Tell the supervisor, or keep it; the status to exit with."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if not name or not _is_plain(name):
        return _USAGE
    shape = _event()
    env = {key: posix.environ.get(key, b"") for key in (b"NIGHTCREW_AGENTS_SOCKET", b"NIGHTCREW_TOKEN", b"NIGHTCREW_OUT")}
    path, token, folder = env.values()
    answer = b""
    try:
        if path and token and _is_plain(token.decode("latin-1")):
            answer = _tell(path, token, name.encode(), shape)
    except OSError:
        answer = b""
    if name == "PreToolUse":
        _say(answer)
    if not answer and folder:
        try:
            _keep(folder, name.encode(), shape)
        except OSError:  # there is nobody to tell: an agent's hook says nothing
            return 0
    return 0


def _event() -> bytes:
    """The hook's input as one line; `null` when it is too long or there is none: the name of the event says enough."""
    data = b""
    while len(data) <= _INPUT_MAX and (more := posix.read(0, _INPUT_MAX + 1 - len(data))):
        data += more
    while len(data) > _INPUT_MAX and posix.read(0, _INPUT_MAX):
        pass  # whoever writes it shall not meet a closed pipe
    if not data or len(data) > _INPUT_MAX or b"\0" in data:
        return b"null"
    return data.replace(b"\n", b" ").replace(b"\r", b" ")


def _is_plain(text: str) -> bool:
    return len(text) < 512 and all(" " <= char <= "~" and char not in '"\\' for char in text)


def _tell(path: bytes, token: bytes, name: bytes, shape: bytes) -> bytes:
    """The supervisor's answer; empty: it did not answer. Refused is answered too: it would be refused again."""
    door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    door.settimeout(_PATIENCE_S)
    door.connect(path)
    door.sendall(b'{"version":"","verb":"hook","token":"%b","args":{"name":"%b","event":%b}}\n' % (token, name, shape))
    answer = b""
    while len(answer) < _ANSWER_MAX and b"\n" not in answer:
        try:
            more = door.recv(_ANSWER_MAX - len(answer))
        except OSError:
            break
        if not more:
            break
        answer += more
    return answer


def _say(answer: bytes) -> None:
    """Print the one value of an answer, as it stands there. Anything else, and a part of it, is nothing."""
    before, after = b'{"ok": true, "value": {"print": ', b"}}\n"
    if answer.startswith(before) and answer.endswith(after):
        posix.write(1, answer[len(before) : -len(after)])


def _keep(folder: bytes, name: bytes, shape: bytes) -> None:
    line = b'{"at":%.6f,"name":"%b","event":%b}\n' % (time.time(), name, shape)
    flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC
    file = posix.open(folder + b"/hooks.jsonl", flags, 0o600)
    if posix.fstat(file).st_mode >> 12 == 8 and posix.fstat(file).st_size + len(line) <= _KEPT_MAX:  # 8: a regular file
        posix.write(file, line)


if __name__ == "__main__":
    sys.exit(main())
