"""Write the option tables of ``docs/client.md`` from the declarations: ``python docs/client_options.py``."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from aionsq.options import ConnectionOptions, ConsumerOptions, ProducerOptions
from nsqdaemon.declaration import shown_value, value_of_code
from nsqdaemon.settings import declarations

PAGE = Path(__file__).with_name("client.md")
CLASSES = (ConnectionOptions, ProducerOptions, ConsumerOptions)


def table(cls: type[ConnectionOptions]) -> str:
    """The options a class adds to what it inherits, as a Markdown table."""
    rows = ["| option | default | range | meaning |", "|---|---|---|---|"]
    for name, declaration in declarations(cls).items():
        if name not in {field.name for field in fields(cls)} & set(cls.__annotations__):
            continue
        default = declaration.shown or shown_value(value_of_code(declaration, declaration.default)) or "none"
        bounds = [shown_value(bound) if bound is not None else "" for bound in (declaration.min, declaration.max)]
        span = ", ".join(declaration.choices) or ("..".join(bounds) if any(bounds) else "")
        rows.append(f"| `{name}` | {default} | {span} | {declaration.help} |")
    return "\n".join(rows) + "\n"


def page(text: str) -> str:
    """The page with its tables as the declarations have them."""
    for cls in CLASSES:
        pattern = rf"(### {cls.__name__}[^\n]*\n\n)(?:\|[^\n]*\n)+"
        text = re.sub(pattern, lambda found, cls=cls: found[1] + table(cls), text)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
