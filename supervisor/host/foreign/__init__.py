"""The one door to files and directories that an agent can write while we use them.

An agent can put a link, a pipe or a device in the place of anything there, and swap a directory between two looks of ours. So nothing is
used by its path: a directory is opened once, with no link on the way below what we trust, and what is done in it is done by its handle. A
file counts only when it is a regular one with a single name. No call here waits: a pipe is opened without blocking, and then refused.

    folder, Folder            one directory by its handle, and the files in it
    Descent, entries          a whole tree by handles, however deep
    remove_tree
    open_plain, read_plain, read_on, last_line, sha256
                            a file in a directory of ours alone, when only the file itself is in doubt: there a path will do

What lies in the way is not deleted but renamed where it lies (`Folder.set_aside`): a link's text may be all that tells what was tried.
"""

from supervisor.host.foreign.folders import ASIDE, Folder, folder, kind, may_wait
from supervisor.host.foreign.reading import last_line, open_plain, read_on, read_plain, sha256
from supervisor.host.foreign.trees import Descent, entries, remove_tree

__all__ = [
    "ASIDE",
    "Descent",
    "Folder",
    "entries",
    "folder",
    "kind",
    "last_line",
    "may_wait",
    "open_plain",
    "read_on",
    "read_plain",
    "remove_tree",
    "sha256",
]
