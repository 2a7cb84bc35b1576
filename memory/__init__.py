"""What the agents of one repository share: files that people can read and edit, watched, searched and pruned.

files.py         where everything lies, and the files by the door for what others can write
note.py          one note: its front matter and pages, text made harmless, days, differences and the log
listing.py       which files there are, which are about which, which go to the archive
writing.py       who may write what, and how a file is written, moved and added to, so that a kill at any step loses nothing
versions.py      memory.db: every version, who wrote it and when, and who read it
watching.py      which files changed, as the kernel says it; rescan.py as a walk finds it
search.py        finding notes by words, and what an agent is told before its task; semantic.py by what they mean
mail.py          messages: their rules, rows and lines
rows.py          leases and waits in the ledger
local.py         how a command asks for all this; mem_commands.py and mail_commands.py the verbs
reports.py       what agents had from a memory, and the graph of waits
service/         what runs in the supervisor
"""
