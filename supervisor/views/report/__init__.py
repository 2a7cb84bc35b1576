"""The report of a run: one dict of plain JSON (schema 1) in, `report.html`, `report.md` and `report.json` out.

    write.write -> html.render     -> charts (what is drawn), template.html.j2, report.css, report.js, vendor/ (uPlot)
                -> markdown.render -> escape
    words: what both say of the run, as sentences and numbers

Every text may come from a hostile repository or an agent. `words.clean` makes control characters and direction overrides visible,
once and for all texts; then each page escapes for its own markup.
"""
