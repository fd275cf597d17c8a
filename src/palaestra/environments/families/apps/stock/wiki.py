"""What a wiki can do: everybody edits articles, and brings earlier texts back."""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row

ARTICLE, REVISION = "wiki.article", "wiki.revision"


def _replace(call: Caller, article: Row, text: str) -> Row:
    """Give an article another text; the one that it had becomes a revision."""
    if len(text) > 4000:
        raise ApiError(422, "An article has at most 4000 characters.")
    row = {"owner": call.person, "article_id": article["id"], "text": article["text"]}
    revision = call.state.insert(REVISION, row | {"replaced": call.now})
    changed = {"text": text, "editor": call.email(), "edited": call.now}
    call.state.update(ARTICLE, article["id"], changed)
    return {"article_id": article["id"], "revision_id": revision}


@verb
def edit_article(call: Caller, article_id: int, old: str, new: str) -> Row:
    """Replace a piece of an article, which occurs there once, by another one.

    Returns:
        article_id: integer
        revision_id: integer

    Raises:
        404: there is no such article
        409: the piece does not occur there once
    """
    article = call.read(ARTICLE, article_id)
    if not old or article["text"].count(old) != 1:
        raise ApiError(409, f"'{old}' does not occur once on this article.")
    return _replace(call, article, article["text"].replace(old, new))


@verb
def append_to_article(call: Caller, article_id: int, line: str) -> Row:
    """Add a line at the end of an article.

    Returns:
        article_id: integer
        revision_id: integer

    Raises:
        404: there is no such article
    """
    article = call.read(ARTICLE, article_id)
    return _replace(call, article, f"{article['text']}\n{line}".strip("\n"))


@verb
def restore_revision(call: Caller, revision_id: int) -> Row:
    """Give an article the text of one of its revisions.

    Returns:
        article_id: integer
        revision_id: integer

    Raises:
        404: there is no such revision
    """
    revision = call.read(REVISION, revision_id)
    return _replace(call, call.read(ARTICLE, revision["article_id"]), revision["text"])


VERBS = (edit_article, append_to_article, restore_revision)
