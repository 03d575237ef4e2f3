"""The card: README.md of an artifact, made from its manifest and tree, so that it cannot say anything else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from medusakit.artifact.schema import ArtifactManifest, CalibratedTree

_SHOWN_NODES = 8


def card_text(manifest: ArtifactManifest, tree: CalibratedTree) -> str:
    """Markdown: what it is, for which model, how it does, what it was trained on, how to use it."""
    backbone, drafter = manifest.backbone, manifest.drafter
    lines = [
        f"# {drafter.family} drafter for {backbone.name}",
        "",
        f"Drafts up to {drafter.depth} tokens ahead for `{backbone.name}`; the model verifies them as a tree in one",
        "pass, so what comes out is the model's own text (medusakit, arXiv 2401.10774). It fits these weights:",
        "",
        *_table(
            ("property", "value"),
            [
                ("fingerprint", f"`{backbone.fingerprint}`"),
                ("hidden size", backbone.hidden_size),
                ("vocabulary", backbone.vocab_size),
                ("draft vocabulary", drafter.draft_vocab_size or "full"),
                *((name, f"`{value}`") for name, value in sorted(drafter.params.items())),
            ],
        ),
        "",
        "## How well it drafts",
        "",
        *_accuracy(manifest.provenance.metrics),
        *_tree_lines(tree),
        "",
        "## Where it comes from",
        "",
        *_origin(manifest),
        "",
        "## Use",
        "",
        "```",
        'medusa run -m MODEL --heads THIS_FOLDER "Explain a B-tree in two sentences"',
        "```",
        "",
        "Files: " + ", ".join(f"`{name}` (sha256 `{value[:16]}...`)" for name, value in manifest.files.items()),
        "",
    ]
    return "\n".join(lines)


def _accuracy(metrics: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    if by_depth := metrics.get("top1_by_depth"):
        lines += _table(
            ("depth", "top-1 on held-out answers of the model"),
            [(depth, f"{value:.3f}") for depth, value in enumerate(by_depth, start=1)],
        ) + [""]
    if by_budget := metrics.get("tau_by_budget"):
        lines += _table(
            ("nodes a step (root included)", "expected tokens a step"),
            [(budget, f"{value:.2f}") for budget, value in by_budget.items()],
        ) + [""]
    if verdict := metrics.get("verdict"):
        lines += [str(verdict), ""]
    return lines or ["Not measured.", ""]


def _tree_lines(tree: CalibratedTree) -> list[str]:
    if not tree.nodes:
        return ["No calibrated tree."]
    shown = ", ".join(f"{'-'.join(map(str, node.path))}: {node.acceptance:.2f}" for node in tree.nodes[:_SHOWN_NODES])
    source = f" ({tree.data})" if tree.data else ""
    return [
        f"Tree: {len(tree.nodes)} nodes in order of gain, calibrated on {tree.num_positions:,} positions{source}.",
        f"The first of them, rank path and joint acceptance: {shown}.",
    ]


def _origin(manifest: ArtifactManifest) -> list[str]:
    made = manifest.provenance
    recipe = dict(made.recipe)
    licenses, settings = recipe.pop("licenses", {}), recipe.pop("settings", {})
    rows: list[tuple[object, object]] = [
        ("made", f"{made.created} with medusakit {made.medusakit}"),
        ("training tokens", f"{made.train_tokens:,} of the model's own answers"),
    ]
    rows += [(name, _plain(value)) for name, value in sorted(recipe.items()) if value]
    lines = _table(("what", "value"), rows)
    if licenses:
        prompts = "; ".join(f"{source} ({licence})" for source, licence in sorted(licenses.items()))
        lines += ["", f"Prompts: {prompts}. The answers are the model's own, under its licence."]
    if settings:
        lines += ["", "Settings:", "", "```json", json.dumps(settings, indent=1), "```"]
    return lines


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return f"`{value}`"


def _table(header: tuple[str, str], rows: Sequence[tuple[object, object]]) -> list[str]:
    return [f"| {header[0]} | {header[1]} |", "|---|---|", *(f"| {left} | {right} |" for left, right in rows)]
