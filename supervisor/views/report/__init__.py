"""The report of a run: one dict of plain JSON (schema 1) in, `report.html`, `report.md` and `report.json` out.

    model: what the ledger and the analysts know of a run, as `report.json`, and what its charts draw
    words: what the pages say of it, as sentences and numbers
    pages: its document, which `supervisor.views.document` renders as HTML and as Markdown

Every text may come from a hostile repository or an agent. The renderers make control characters and direction overrides visible, and escape
for their own markup.
"""
