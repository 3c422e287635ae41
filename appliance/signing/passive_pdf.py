"""A report does nothing when it is opened: it has no script, no action and no form.

Whoever holds the key can sign a PDF that runs a script, asks for an address when a page is shown,
or fills in what a reader sees. bench writes none of that: from the catalog over outlines and pages
to annotations there is text, links into the document and to addresses, and one field for the
signature. Only what a program may act upon is looked at here, and what turns, cuts, covers a page:
not what is drawn on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from appliance.errors import EvidenceError

TRIGGERS = frozenset({"/AA", "/OpenAction"})
NAMES = frozenset({"/EmbeddedFiles", "/Dests"})
FORM = frozenset({"/Fields", "/SigFlags"})
LINKS = frozenset({"/GoTo", "/URI"})
ANNOTATIONS = frozenset({"/Link", "/Widget"})
HIDING = frozenset(
    {
        "/OCProperties",  # parts that are shown or not as their reader chooses
        "/Collection",  # the files that it carries in the place of its pages
        "/NeedsRendering",
        "/CropBox",
        "/Rotate",
        "/UserUnit",
        "/AP",  # an annotation that is drawn over the page
    }
)
"""Of the catalog, pages and annotations: what bench writes in none of them."""
MOST_NODES = 100_000
"""Pages, annotations and titles of its outlines; those of 64 devices are a hundred."""


def check_passive(catalog: Any, name: str) -> None:
    """EvidenceError for a PDF that may do anything; its catalog is as pyHanko reads it."""
    is_passive = (
        set(_got(catalog, "/Names")) <= NAMES
        and set(_got(catalog, "/AcroForm")) <= FORM
        and _is_still(catalog)
        and all(_is_still(node) for node in _nodes(catalog, name))
    )
    if not is_passive:
        raise EvidenceError(
            f"{name} has a script, an action, a form, an annotation, or what turns, cuts or covers "
            "a page, as no report of ours has"
        )


def _is_still(node: Any) -> bool:
    action, kind = _got(node, "/A"), node.get("/Subtype")
    is_link = not action or (str(action.get("/S")) in LINKS and "/Next" not in action)
    is_known = kind is None or str(kind) in ANNOTATIONS
    return is_link and is_known and not (TRIGGERS | HIDING) & set(node)


def _nodes(catalog: Any, name: str) -> Iterator[Any]:
    """Pages, annotations and titles; EvidenceError for a tree that leads back into itself."""
    left = [_got(catalog, "/Pages"), _got(catalog, "/Outlines")]
    for _ in range(MOST_NODES):
        if not left:
            return
        node = left.pop()
        yield node
        kids = (*_got(node, "/Kids"), *_got(node, "/Annots"))
        left += [one.get_object() if hasattr(one, "get_object") else one for one in kids]
        left += [node[key] for key in ("/First", "/Next") if key in node]
    raise EvidenceError(f"{name} has more pages and annotations than any report, or no end of them")


def _got(node: Any, key: str) -> Any:
    """What stands there, followed to where it is, as `get` does not; nothing if it is missing."""
    return node[key] if key in node else {}  # noqa: SIM401 - see above
