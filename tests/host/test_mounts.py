"""Which file system a path is on."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.host import scratch

LINES = (
    "20 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw",
    "31 20 0:40 / /home rw - nfs4 server:/home rw",
    r"32 31 0:41 / /home/a\040b rw shared:7 - fuse.sshfs host: rw",
    "33 20 0:42 / /tmp rw - tmpfs tmpfs rw",
    "34 20 0:43 / /tmp rw - ext4 /dev/sdb rw",
    "",
    "not a line of it",
)


@pytest.mark.parametrize(
    ("path", "kind", "elsewhere"),
    [
        ("/var/x", "ext4", False),
        ("/home/x", "nfs4", True),
        ("/home/a b/x", "fuse.sshfs", True),
        ("/homes", "ext4", False),
        ("/tmp/x", "ext4", False),
    ],
)
def test_the_longest_mount_point_counts_and_the_newest_of_two(path: str, kind: str, elsewhere: bool) -> None:
    assert scratch.file_system(Path(path), LINES) == kind
    assert scratch.changes_elsewhere(kind) is elsewhere


def test_where_the_kernel_says_nothing_nothing_is_known() -> None:
    assert scratch.file_system(Path("/x"), ()) == ""
    assert not scratch.changes_elsewhere("")
    assert scratch.file_system(Path("/proc/self"))
