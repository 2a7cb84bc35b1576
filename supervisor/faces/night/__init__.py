"""The morning report: one run as a person wants to know it in the morning, as a page, as Markdown and as JSON.

rows        what the ledger and the gateway's account hold of the run, each read in one transaction
model       what it came to: a pure function of those rows
lanes       where each agent's time went, as spans
branches    what git says of the branches; the command looks, and hands it in
words       sentences and numbers that all three forms share
html, markdown, write
"""
