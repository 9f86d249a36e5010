"""The report as an HTML page, rendered from its JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aclnn.support.optional import import_or_raise
from aclnn.verify.report import charts
from aclnn.verify.report.text import distance, exact, figures, short, summary

Json = dict[str, Any]


def render(report: Json) -> str:
    """Return the page, without network access, scripts or other files.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    jinja2 = import_or_raise("jinja2", "verify")
    markup = import_or_raise("markupsafe", "verify").Markup
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters.update(short=short, exact=exact, figures=figures, summary=summary, distance=distance)
    for name in ("histogram", "by_x", "match_map"):
        environment.filters[name] = _drawn(getattr(charts, name), markup)
    template = environment.from_string(Path(__file__).with_name("template.html").read_text(encoding="utf-8"))
    # "<" is escaped so that no name in the report can close the enclosing script element.
    data = markup(json.dumps(report, allow_nan=False).replace("<", "\\u003c"))
    page: str = template.render(report=report, data=data)
    return page


def _drawn(draw: Any, markup: Any) -> Any:
    return lambda output: markup(draw(output))
