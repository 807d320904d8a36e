"""This module is what `make docs-site` does beyond Markdown: files that pages link to, and drawn Mermaid graphs.

mkdocs calls the functions named `on_...` (mkdocs.yml, `hooks`).
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs import mermaid_svg

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()((?:\.\./)+[^)\s#]+)")
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHANGELOG = "changelog.md"


def outside(page: str, link: str) -> str | None:
    """Return the repository's path of what a page in docs/ links to, where that lies outside docs/, else None."""
    path = os.path.normpath(os.path.join("docs", os.path.dirname(page), link))
    return None if path.startswith("docs/") or path == ".." else path


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the changelog, and every file outside docs/ that some page links to, below `source/`."""
    linked = set()
    for file in files.documentation_pages():
        linked |= {outside(file.src_uri, match[2]) for match in LINK.finditer(file.content_string)}
    for path in sorted(filter(None, linked)):
        if (ROOT / path).is_file() and path != "CHANGELOG.md":
            files.append(File.generated(config, f"source/{path}.txt", abs_src_path=str(ROOT / path)))
    changes = (ROOT / "CHANGELOG.md").read_text().replace("](docs/", "](")
    files.append(File.generated(config, CHANGELOG, content=changes))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to the repository's files at their copies in the site, and draw Mermaid graphs.

    Args:
        markdown: the page as it is in docs/.
        page: says where it lies.
        config: the site's; not used.
        files: the site's; not used.
    """

    def link(match: re.Match[str]) -> str:
        path = outside(page.file.src_uri, match[2])
        if path is None:
            return match[0]
        there = CHANGELOG if path == "CHANGELOG.md" else f"source/{path}.txt"
        return match[1] + os.path.relpath(there, os.path.dirname(page.file.src_uri) or ".")

    return MERMAID.sub(lambda match: mermaid_svg.svg(match[1]), LINK.sub(link, markdown))
