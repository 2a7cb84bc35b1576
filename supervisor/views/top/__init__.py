"""`nightcrew top`: the crew on one screen.

app          the screen: layout, and what is shown      main_screen  keys to acts, and the threads that look
lists        the widgets                                dialogs      what is asked, and the help

`supervisor.client.crew` reads and acts for it.
"""
