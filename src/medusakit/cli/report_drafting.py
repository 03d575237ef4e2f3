"""Drafters, trees and profiles as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from medusakit.cli.ui import Ui

Row = Mapping[str, Any]


def show_drafters(ui: Ui, document: dict[str, Any]) -> None:
    """All drafters, the fastest first; their categories; the same heads with more and more noise."""
    found = dict(sorted(document["drafters"].items(), key=lambda item: -item[1]["speedup"]))
    columns = ("drafter", "family", "parameters", "MB", "draft ms", "nodes/step", "tau", "rho", "speed-up", "95 %")
    ui.table("", columns, [_drafter(name, row) for name, row in found.items()], text=2)
    categories = list(next(iter(found.values()))["by_category"]) if found else []
    if len(categories) > 1:
        rows = [
            (category, *(_category(row["by_category"][category]) for row in found.values())) for category in categories
        ]
        ui.table("\nspeed-up (tau) by category", ("category", *found), rows)
    if document["degraded"]:
        rows = [
            (f"{row['noise']:g}", f"{row['tau']:.2f}", f"{row['rho']:.2f}", f"{row['speedup']:.2f}x", _interval(row))
            for row in document["degraded"]
        ]
        ui.table("\nthe heads in use with noise", ("noise", "tau", "rho", "speed-up", "95 %"), rows, text=0)
    ui.line(f"plain {document['plain']['tokens_per_s']:.1f} tok/s with {document['weights']} weights")
    _equality(ui, document)


def show_grid(ui: Ui, document: dict[str, Any]) -> None:
    """Every tree by the time of its pass, with a mark for those that no other beats."""
    fronts = {"tau": document["pareto"], "rho_eff": document["pareto_rho_eff"]}
    marks = {gain: {point["name"] for point in front} for gain, front in fronts.items()}
    rows = []
    for point in sorted(document["points"], key=lambda point: point["verify_ms"]):
        figures = (
            f"{point['verify_ms']:.1f}",
            f"{point['draft_ms']:.1f}",
            f"{point['tau']:.2f}",
            f"{point['rho_eff']:.2f}",
        )
        front = " ".join(gain for gain, names in marks.items() if point["name"] in names)
        faster = f"{point['speedup']:.2f}x"
        nodes = f"{point['nodes_per_step']:.1f}"
        rows.append((point["name"], front, nodes, point["depth"], *figures, faster, _interval(point)))
    columns = ("tree", "front of", "nodes/step", "depth", "verify ms", "draft ms", "tau", "rho_eff", "speed-up", "95 %")
    ui.table("", columns, rows, text=2)
    best = document["best"]
    ui.line(f"best: {best['name']}, {best['speedup']:.2f}x with {document['weights']} weights", "head")
    if written := document.get("written"):
        ui.line("the heads recommend now: " + ", ".join(f"{name} {value}" for name, value in written.items()), "good")
    _equality(ui, document)


def show_profile(ui: Ui, document: dict[str, Any]) -> None:
    """Lengths, load, and what would suit them."""
    rows = [
        (name, *(_count(document[key][part]) for part in ("p50", "p95", "mean", "most")))
        for name, key in (("prompt tokens", "prompt_tokens"), ("output tokens", "output_tokens"))
    ]
    title = f"{document['requests']:,} request{'s' if document['requests'] != 1 else ''}"
    ui.table(title, ("", "P50", "P95", "mean", "most"), rows)
    load, suggestion = document["load"], document["suggestion"]
    if load["rate_per_s"] is not None:
        ui.line(f"{load['rate_per_s']:.3g} requests a second")
    if load["concurrency"] is not None:
        peak = "" if load["peak"] is None else f", {load['peak']} at most"
        ui.line(f"{load['concurrency']:.2f} at a time on average{peak}")
    if (estimated := suggestion.get("concurrency_estimated")) is not None:
        ui.line(f"about {estimated:.2f} at a time, by what an answer takes on this machine")
    known = {name: suggestion[name] for name in ("max_context", "max_rows", "budget") if suggestion[name] is not None}
    ui.line("suggestion: " + (", ".join(f"{name} {value}" for name, value in known.items()) or "none"), "head")
    by_rows = [
        (best["rows"], best["num_nodes"], f"{best['tau']:.2f}", f"{best['speedup']:.2f}x")
        for best in suggestion["by_rows"]
    ]
    if by_rows:
        ui.table("expected by rows in a batch", ("rows", "budget", "tau", "speed-up"), by_rows, text=0)


def _drafter(name: str, row: Row) -> tuple[object, ...]:
    size = f"{row['bytes'] / 1e6:.1f}" if row["bytes"] else "-"
    return (
        name,
        row["family"],
        f"{row['params']:,}" if row["params"] else "-",
        size,
        f"{row['draft_ms']:.2f}",
        f"{row['nodes_per_step']:.1f}",
        f"{row['tau']:.2f}",
        f"{row['rho']:.2f}",
        f"{row['speedup']:.2f}x",
        _interval(row),
    )


def _category(found: Row) -> str:
    return f"{found['speedup']:.2f}x ({found['tau']:.2f})"


def _interval(row: Row) -> str:
    low, high = row["ci95"]
    return f"{low:.2f} to {high:.2f}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _equality(ui: Ui, document: dict[str, Any]) -> None:
    """One line for all entries, and the names of those that part from plain."""
    found = document["identical"]
    turns = sum(pair["turns"] for pair in found.values())
    same = sum(pair["equal"] for pair in found.values())
    tied = sum(pair["tied"] for pair in found.values())
    text = f"{same} of {turns} answers equal plain's" + (f", {tied} part at a tie" if tied else "")
    broken = [name for name, pair in found.items() if pair["different"]]
    ui.line(f"{text}; DIFFERENT: {', '.join(broken)}" if broken else text, "bad" if broken else "good")
