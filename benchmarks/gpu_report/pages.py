"""The report as one HTML file, which needs nothing beside it, and as Markdown, without charts."""

from __future__ import annotations

from html import escape
from pathlib import Path

from benchmarks.gpu_report.content import Report, Section, Table, goals_table

_COLOURS = {"pass": "#1e7b34", "fail": "#b3261e", "not measured": "#6b7280"}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f23; margin: 0 auto; padding: 24px;
  max-width: 1180px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 34px 0 8px; }
table { border-collapse: collapse; margin: 8px 0 18px; font-size: 13.5px; }
caption { text-align: left; font-weight: 600; padding: 4px 0; }
th, td { text-align: left; padding: 4px 12px 4px 0; border-bottom: 1px solid #e3e6e9;
  vertical-align: top; overflow-wrap: anywhere; }
th { color: #57606a; font-weight: 600; white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(480px, 1fr)); gap: 18px; }
.verdict { color: #fff; border-radius: 4px; padding: 1px 8px; white-space: nowrap; }
summary { cursor: pointer; font-size: 17px; font-weight: 600; margin: 14px 0; }
"""


def write_pages(found: Report, folder: Path) -> list[Path]:
    """report.html and report.md."""
    pages = {"report.html": html(found), "report.md": markdown(found)}
    for name, text in pages.items():
        (folder / name).write_text(text)
    return [folder / name for name in pages]


def html(found: Report) -> str:
    sections = "".join(map(_section, found.sections))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(found.title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(found.title)}</h1><p>{escape(found.summary)}</p>"
        f"<h2>Goals</h2>{_table(goals_table(found.verdicts))}{sections}</body></html>\n"
    )


def _section(section: Section) -> str:
    """The figures of single steps are folded away: the goals and charts come from them."""
    charts = "".join(f"<div>{chart}</div>" for chart in section.charts)
    body = f"<p>{escape(section.text)}</p>" if section.text else ""
    body += f'<div class="charts">{charts}</div>' if charts else ""
    body += "".join(map(_table, section.tables))
    if ": " in section.title:
        return f"<details><summary>{escape(section.title)}</summary>{body}</details>"
    return f"<h2>{escape(section.title)}</h2>{body}"


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(text: str) -> str:
    if text in _COLOURS:
        return f'<td><span class="verdict" style="background:{_COLOURS[text]}">{text}</span></td>'
    is_number = text.replace(",", "").replace(".", "").removesuffix(" %").isdigit()
    return f"<td{' class=number' if is_number else ''}>{escape(text)}</td>"


def markdown(found: Report) -> str:
    parts = [
        f"# {found.title}",
        found.summary,
        "## Goals",
        _markdown_table(goals_table(found.verdicts)),
    ]
    for section in found.sections:
        parts.append(f"## {section.title}")
        if section.charts:
            parts.append(f"{len(section.charts)} charts are in report.html.")
        parts += [section.text] if section.text else []
        parts += map(_markdown_table, section.tables)
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> str:
    lines = [_markdown_row(table.header), "|---" * len(table.header) + "|"]
    lines += map(_markdown_row, table.rows)
    caption = f"**{table.caption}**\n\n" if table.caption else ""
    return caption + "\n".join(lines)


def _markdown_row(cells: object) -> str:
    assert isinstance(cells, (list, tuple))
    return (
        "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
    )
