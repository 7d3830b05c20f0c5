"""What the site needs beyond the pages in docs/: pages from elsewhere in the repository, and what links to files there lead to."""

import posixpath
import re
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent

# Documents outside of docs/ that are pages of the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "crates/shim/README.md": "shim.md",
    "plugin/README.md": "plugin.md",
}
# What a browser fetches by itself from another host.
FOREIGN = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^"'\s>]*""")
# The name of a field or setting, at the beginning of a row.
NAME = re.compile(r"<tr>\s*<td><code>([^<]*)</code>")
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files, config):
    """Adds the pages from elsewhere, the style, and the files that pages link to."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    files.append(File.generated(config, "assets/extra.css", content=(HERE / "extra.css").read_text()))
    linked = set()
    for file in files.documentation_pages():
        for _, target in links(file):
            if not target.startswith("docs/") and target not in PAGES and (ROOT / target).is_file():
                linked.add(target)
    for target in sorted(linked):
        files.append(File.generated(config, shown(target), content=(ROOT / target).read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turns links into the repository into links within the site; what is no file there stays as words."""
    origin = place(page.file)

    def turn(match):
        words, link = match.groups()
        if "://" in link or link.startswith(("#", "mailto:")):
            return match[0]
        path, _, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
        if target in PAGES:
            inside = PAGES[target]
        elif (ROOT / target).is_dir():
            if not (ROOT / target / "README.md").is_file() or not target.startswith("docs/"):
                return words
            inside = f"{target.removeprefix('docs/')}/README.md"
        elif target.startswith("docs/"):
            inside = target.removeprefix("docs/")
        else:
            inside = shown(target)
        relative = posixpath.relpath(inside, posixpath.dirname(page.file.src_uri) or ".")
        return f"[{words}]({relative}{'#' + anchor if anchor else ''})"

    return LINK.sub(turn, markdown)


def on_page_content(html, page, config, files):
    """Lets the path of a field break after its dots, so that its row leaves room for what it means."""
    return NAME.sub(lambda match: match[0].replace(".", ".<wbr>"), html)


def on_post_page(output, page, config):
    """Refuses a page that loads something from another host: the site works offline, and tells nobody who reads it."""
    if foreign := FOREIGN.search(output):
        raise PluginError(f"{page.file.src_uri} loads from another host: {foreign[0]}")


def links(file):
    """The words of links in a page, and where they lead in the repository."""
    origin = place(file)
    for words, link in LINK.findall(file.content_string):
        if "://" not in link and not link.startswith("#"):
            path = link.partition("#")[0]
            yield words, posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))


def place(file):
    """Where a page is in the repository."""
    return next((source for source, page in PAGES.items() if page == file.src_uri), f"docs/{file.src_uri}")


def shown(target):
    """What a file of the repository is called on the site: as text, so that browsers show it."""
    return f"source/{target.lstrip(chr(46))}.txt"
