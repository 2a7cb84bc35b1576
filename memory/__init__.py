"""What the agents of one repository share: files that people can read and edit, watched, searched and pruned.

files.py         where everything lies, and the files by the door for what others can write
note.py          one note: its head and pages, text made harmless, days, differences and the log
listing.py       which files there are, which are about which, which go to the archive
writing.py       who may write what, and how a file is written so that a kill at any step loses nothing
versions.py      memory.db: every version, who wrote it and when, and who read it
watching.py      which files changed, as the kernel says it; rescan.py as a walk finds it
search.py        finding notes by words, and what an agent is told before its task
mail.py          messages and their rows in the ledger
rows.py          leases and waits in the ledger
"""
