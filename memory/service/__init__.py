"""How agents coordinate: notes, mail, leases and waits of each project, as the supervisor keeps them.

desk.py     opens the memory of each project, on one thread beside the loop's; who is told of changes
mail.py     messages: taken, and read by one; mail_requests.py what may be asked; mail_keeping.py given, followed, sent back, recovered;
            adopting.py files of strangers; handoff.py work that goes on elsewhere
waits.py    who waits for whom: no wait begins that could never end
"""
