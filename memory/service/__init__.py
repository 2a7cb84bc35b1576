"""How agents coordinate: notes, mail, leases and waits of each project, as the supervisor keeps them.

desk.py           opens the memory of each project, on one thread beside the loop's, and tells who waits for changes
notes.py          the verb `mem`
mail.py           takes messages, hands each to one reader, and keeps their files; mail_requests.py what may be asked
leases.py         who has which files, who waits for them, and the verb `lease`
waits.py          who waits for whom: no wait begins that could never end
"""
