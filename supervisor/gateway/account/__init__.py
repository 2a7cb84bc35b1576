"""The account, `gateway.db`: what every request took, committed before the provider sees it.

charges     one request when it is sent and when it is over, and what it costs
writer      Account: its own thread, its own connection, group commit
schema      the file: its tables, and how it is opened
reading     what people and programs ask of it, read-only
"""
