"""A hook of MkDocs: the pages of the site that are not in docs/, and links that lead out of docs/.

README.md, SECURITY.md and CHANGELOG.md are pages of the site. Links to other files of the repository become plain text,
because the site does not have these files.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = {"README.md": "index.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}
"""Files of the root, and their pages."""
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_SOURCE: Final = re.compile(r'(src(?:set)?=")docs/')
_CODE: Final = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root."""
    for source, page in PAGES.items():
        text = adapted((ROOT / source).read_text(), "")
        files.append(File.generated(config, page, content=_SOURCE.sub(r"\1", text)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Adapt the links of a page of docs/."""
    return markdown if page.file.src_uri in PAGES.values() else adapted(markdown, "docs")


def adapted(markdown: str, folder: str) -> str:
    """``markdown`` of a file in ``folder``, with links that are right from docs/. Code is left as it is."""
    parts = _CODE.split(markdown)
    for place in range(0, len(parts), 2):
        parts[place] = _LINK.sub(lambda link: _adapted(link, folder), parts[place])
    return "".join(parts)


def _adapted(link: re.Match[str], folder: str) -> str:
    image, text, target, anchor = link.groups(default="")
    if not target or "://" in target or target.startswith("mailto:"):
        return link[0]
    path = posixpath.normpath(posixpath.join(folder, target))
    if path in PAGES:
        return f"{image}[{text}]({PAGES[path]}{anchor})"
    if path.startswith("docs/"):
        return f"{image}[{text}]({path.removeprefix('docs/')}{anchor})"
    return text
