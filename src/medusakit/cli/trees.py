"""What --tree says: a name, depth x branching, or a file of nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusakit.errors import UsageError

if TYPE_CHECKING:
    from medusakit.tree.given import GivenTree


def read_tree(text: str) -> GivenTree:
    """The tree of `auto`, `dynamic`, `static`, DxB, or of a JSON file: a list of rank paths, or what `medusa tree show
    --json` writes. Raises UsageError that says what was found and what would work."""
    from medusakit.tree.given import EXAMPLE, NAMES, checked, is_dense

    if text in NAMES or is_dense(text):
        return checked(text)
    path = _file(text)
    if path is None:
        hint = f"--tree 2x3, or a JSON file that holds {EXAMPLE}"
        raise UsageError(f"--tree {text} is neither {', '.join(NAMES)}, nor DxB, nor a file", hint=hint)
    try:
        return checked(_paths(json.loads(path.read_text(encoding="utf-8"))))
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} holds no JSON: {error}", hint=EXAMPLE) from None


def _file(text: str) -> Path | None:
    """A text that cannot even be a file's name (too long, `~nobody`) names none either."""
    try:
        path = Path(text).expanduser()
        return path if path.is_file() else None
    except (OSError, RuntimeError):
        return None


def _paths(found: Any) -> Any:
    """Of a list, or of a document with nodes."""
    nodes = found.get("nodes") if isinstance(found, dict) else None
    if isinstance(nodes, list) and all(isinstance(node, dict) for node in nodes):
        return [node.get("path") for node in nodes]
    return found
