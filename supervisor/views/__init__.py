"""What a person sees: read models of the ledger and of the gateway, and their text. They never decide.

What `status` imports of them needs the standard library only; the report draws its pages with jinja2.
"""
