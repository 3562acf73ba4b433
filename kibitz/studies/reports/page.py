"""A report as one HTML file: both themes, printable, without scripts or anything from elsewhere."""

from __future__ import annotations

from html import escape

from kibitz.studies.reports.report import Figure, Report, ReportTable

STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --soft: #56616d; --line: #d8dee4; --paper: #fff; --raised: #f5f7f9;
  --good: #11683f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #a2adb8; --line: #39434d; --paper: #14191e;
  --raised: #1c232a; --good: #6fd3a2; } }
@media print { :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --raised: #fff;
  --good: #11683f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem 1rem 3rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .5rem 0; max-width: 46rem; }
.note { color: var(--soft); font-size: .875rem; }
ul { padding-left: 1.1rem; max-width: 46rem; }
li { margin: .3rem 0; }
.shown::marker { color: var(--good); content: "\\2713\\00a0"; }
.open::marker { color: var(--soft); content: "\\2013\\00a0"; }
.open { color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem 1rem .3rem 0; text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
th.n, td.n { text-align: right; }
td.n { white-space: nowrap; }
.figures { display: grid; gap: 0 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); }
figure { margin: 0; break-inside: avoid; }
figure svg { display: block; height: auto; max-width: 38rem; width: 100%; }
dl { display: grid; font-size: .875rem; gap: .25rem 1rem; grid-template-columns: max-content minmax(0, 1fr); }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 32rem) { dl { grid-template-columns: minmax(0, 1fr); } dd { margin-bottom: .4rem; } }
@media print { body { font-size: 10.5pt; max-width: none; padding: 0; } h2 { break-after: avoid; }
  tr, li { break-inside: avoid; } .scroll { overflow: visible; } table { font-size: 8.5pt; } }
"""


def page(report: Report) -> str:
    """The whole file."""
    parts = [f"<h1>{escape(report.title)}</h1>", f"<p>{escape(report.summary)}</p>"]
    if report.verdicts:
        parts.append("<h2>Verdicts</h2><ul>")
        for verdict in report.verdicts:
            parts.append(f'<li class="{"shown" if verdict.shown else "open"}">{escape(verdict.text)}</li>')
        parts.append("</ul>")
    figures = [part for part in report.parts if isinstance(part, Figure)]
    if figures:
        parts += ['<div class="figures">', *map(_figure, figures), "</div>"]
    parts += [_table(part) for part in report.parts if not isinstance(part, Figure)]
    if report.notes:
        parts.append("<h2>Notes</h2><ul>" + "".join(f"<li>{escape(note)}</li>" for note in report.notes) + "</ul>")
    facts = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in report.facts.items())
    parts.append(f"<h2>How this was made</h2><dl>{facts}</dl>")
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.title)}</title><style>{STYLE}</style></head><body><main>\n"
    )
    return head + "\n".join(parts) + "\n</main></body></html>\n"


def _figure(figure: Figure) -> str:
    note = f'<p class="note">{escape(figure.note)}</p>' if figure.note else ""
    return f"<figure><h2>{escape(figure.title)}</h2>{figure.svg}{note}</figure>"


def _table(table: ReportTable) -> str:
    classes = ["" if column.kind == "text" else ' class="n"' for column in table.columns]
    names = "".join(f"<th{c}>{escape(column.name)}</th>" for c, column in zip(classes, table.columns, strict=True))
    rows = "\n".join(
        "<tr>" + "".join(f"<td{c}>{escape(cell)}</td>" for c, cell in zip(classes, row, strict=True)) + "</tr>"
        for row in table.shown()
    )
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    body = f"<table><thead><tr>{names}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    return f'<h2>{escape(table.title)}</h2><div class="scroll" tabindex="0">{body}</div>{note}'
