"""What the agents of one repository share: files that people can read and edit, watched, searched and pruned.

layout.py      where everything lies, which kinds there are, and how large each may be
...
store.py       who may write what: read, put, append, remove, restore, approve
writing.py     how a file is written, moved and added to, so that a kill at any step loses nothing
versions.py    memory.db: every version, who wrote it and when
disk.py        the files, by the foreign door
listing.py     which files there are
message.py     a message as text; maildir.py one mailbox, by the foreign door
note.py        front matter and body; days.py the lines of a day; plain_text.py what is stripped, and quotation
"""
