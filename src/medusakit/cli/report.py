"""The documents of the bench as tables and sentences for people."""

from __future__ import annotations

from typing import Any

from medusakit.cli.ui import Ui

PARTS = ("forward", "draft", "other")


def show_comparison(ui: Ui, document: dict[str, Any]) -> None:
    """Modes, speed-ups with their intervals, categories, and whether the modes say the same."""
    columns = ("", "tokens", "tok/s", "tau", "nodes/step", "forward", "draft", "other")
    ui.table("", columns, [_mode_row(name, mode) for name, mode in document["modes"].items()])
    ui.line("tokens, tok/s and tau: without the first token of each answer, which prefill makes", "note")
    depths = document["modes"].get("medusa", {}).get("accepted_by_depth") or []
    if depths:
        ui.line(f"accepted by depth: {'/'.join(f'{100 * share:.0f}' for share in depths)} %")
    if predicted := document["model"].get("predicted"):
        ui.line(f"expected from calibration and T(n): tau {predicted['tau']:.2f}, {predicted['speedup']:.2f}x")
    for pair, found in document["speedup"].items():
        ui.line(f"{pair} {found['ratio']:.2f}x{_interval(found['ci95'])} with {document['weights']} weights", "head")
        sound = found.get("without_loops")
        if sound and (sound["ratio"], sound["ci95"]) != (found["ratio"], found["ci95"]):  # else none ends in a loop
            answers = f"{sound['answers']} answers" if sound["answers"] > 1 else "answer"
            ui.line(f"  {sound['ratio']:.2f}x{_interval(sound['ci95'])} on the {answers} without a loop")
        if promised := found.get("predicted"):
            ui.line(
                f"  T(n) and this tau promise {promised['ratio']:.2f}x; {100 * promised['reached']:.0f} % of it", "note"
            )
    _show_categories(ui, document["speedup"])
    for pair, found in document["identical"].items():
        _show_equality(ui, pair, found, lossless=document["lossless"])


def show_hardware(ui: Ui, document: dict[str, Any]) -> None:
    """Rates of the machine, and T(n) against its limit for every format."""
    ui.line(f"read {document['read_gb_s']:.1f} GB/s · copy {document['copy_gb_s']:.1f} GB/s")
    ui.line(f"matrix products: {document['gemm_gflop_s']:.0f} GFLOP/s fp32 · {document['int8_gop_s']:.0f} GOP/s int8")
    for weights, steps in document["step_ms"].items():
        rows = [
            (n, f"{taken:.1f}", f"{document['limit_ms'][weights][n]:.1f}", f"{document['ratio'][weights][n]:.2f}")
            for n, taken in steps.items()
        ]
        ui.table(f"\n{weights}: one pass over n nodes", ("n", "ms", "limit ms", "ratio"), rows, text=0)


def show_audit(ui: Ui, document: dict[str, Any]) -> None:
    """One row per weight format: the node audit and both token proofs."""
    columns = ("weights", "nodes", "KL max", "logits max", "greedy", "sampled", "parted/1000", "verdict")
    ui.table("", columns, [_audit_row(name, found) for name, found in document["formats"].items()])
    for name, found in document["formats"].items():
        for proof in ("greedy", "sample"):
            for difference in found[proof]["first_differences"]:
                ui.line(f"{name} {proof}: {_difference(difference)}")
    if document["passed"]:
        ui.line("every format keeps what it promises", "good")
    else:
        ui.line("the output is not exact", "bad")


def _mode_row(name: str, mode: dict[str, Any]) -> list[str]:
    shares = [f"{100 * mode['time_split'][part]:.0f} %" for part in PARTS]
    figures = [f"{mode['tokens_per_s']:.1f}", f"{mode['tau']:.2f}", f"{mode['nodes_per_step']:.1f}"]
    return [name, str(mode["tokens"]), *figures, *shares]


def _interval(ci95: list[float]) -> str:
    low, high = ci95
    return f" (95 % interval {low:.2f} to {high:.2f})" if high - low > 1e-9 else ""


def _show_categories(ui: Ui, speedup: dict[str, Any]) -> None:
    categories = sorted({name for found in speedup.values() for name in found["by_category"]})
    if len(categories) < 2:
        return
    rows = [(name, *(f"{found['by_category'].get(name, 0):.2f}x" for found in speedup.values())) for name in categories]
    ui.table("", ("category", *speedup), rows)


def _show_equality(ui: Ui, pair: str, found: dict[str, Any], *, lossless: bool) -> None:
    text = f"{pair}: {found['equal']} of {found['turns']} answers have the same tokens"
    if not lossless:
        ui.line(f"{text}; this acceptance is lossy, so they may differ", "warning")
        return
    if found["tied"]:
        text += f", {found['tied']} part at a tie"
    ui.line(text, "good" if found["equal"] + found["tied"] == found["turns"] else "bad")
    for difference in found["first_differences"]:
        ui.line(f"  {_difference(difference)}")


def _difference(found: dict[str, Any]) -> str:
    kind = "tie" if found["tied"] else "DIFFERENT"
    gap = f"scores {found['gap']:.1e} apart" if found["gap"] != float("inf") else "one answer ends"
    return f"{found['where']}, token {found['position'] + 1}: {kind}, {gap}"


def _audit_row(name: str, found: dict[str, Any]) -> list[str]:
    proofs = [f"{found[proof]['equal']}/{found[proof]['turns']}{_ties(found[proof])}" for proof in ("greedy", "sample")]
    verdict = "exact" if found["exact"] == "bitwise-ties" else "exact up to numerical ties"
    numbers = [str(found["nodes"]), f"{found['kl_max']:.1e}", f"{found['logit_diff_max']:.1e}"]
    return [name, *numbers, *proofs, f"{found['flips_per_1000']:.2f}", verdict if found["passed"] else "NOT EXACT"]


def _ties(proof: dict[str, Any]) -> str:
    return f" +{proof['tied']} tied" if proof["tied"] else ""
