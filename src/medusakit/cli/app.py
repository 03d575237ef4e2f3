"""What a command gets: the settings of this call with their origins, the console, and the loaded model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from medusakit.cli.group import FLAGS_KEY
from medusakit.cli.ui import Ui
from medusakit.config import Config, Resolved, config_path, resolve

if TYPE_CHECKING:
    from medusakit.llm import LLM
    from medusakit.settings import SamplingParams


class App:
    """One call of the command line. flags: setting name -> value as typed."""

    def __init__(
        self, flags: Mapping[str, Any], *, quiet: bool, config_file: Path | None, env: Mapping[str, str]
    ) -> None:
        self.flags = flags
        self.env = env
        self.given_file = config_file
        self.ui = Ui(quiet=quiet)

    @property
    def config_file(self) -> Path | None:
        """The file that is read: --config, MEDUSA_CONFIG (both must exist), or the user's own if it is there."""
        if self.given_file is not None:
            return self.given_file
        path = config_path(self.env)
        return path if self.env.get("MEDUSA_CONFIG") or path.exists() else None

    @cached_property
    def resolved(self) -> Resolved:
        first = resolve(self.flags, env=self.env, file=self.config_file)
        manifest = Path(first.config.heads).expanduser() / "medusa.json"
        if not manifest.is_file():
            return first
        recommended = _recommended(manifest)
        return resolve(
            self.flags, env=self.env, file=self.config_file, artifact=recommended, artifact_path=str(manifest)
        )

    @property
    def config(self) -> Config:
        return self.resolved.config

    def load(self, *, max_rows: int = 1, dynamic_tree: bool | None = None) -> LLM:
        """The model and heads that the settings name, with a spinner while they load.

        max_rows      sequences that can be decoded at once
        dynamic_tree  instead of the setting
        """
        from medusakit.cli.trees import read_tree
        from medusakit.llm import LLM
        from medusakit.text.chat import read_template

        config = self.config
        self.sampling().validate()  # before minutes of loading, not after
        tree = read_tree(config.tree)
        template = None if config.chat_template is None else read_template(Path(config.chat_template).expanduser())
        with self.ui.status(f"loading {config.model}"):
            llm = LLM.load(
                config.model,
                heads=config.heads,
                weights=config.weights,
                drafter=config.drafter,
                draft_model=config.draft_model,
                tree=tree,
                budget=config.budget,
                dynamic_tree=config.dynamic_tree if dynamic_tree is None else dynamic_tree,
                max_leaves=config.max_leaves,
                breaker_rho=config.breaker_rho,
                threads=config.threads,
                max_context=config.max_context,
                max_rows=max_rows,
                offline=config.offline,
                align_position_embed=config.align_position_embed,
                runtime=config.runtime,
                device_map=config.device_map,
            )
        if template is not None:
            llm.use_chat_template(template)
        found = llm.runtime.capabilities
        for reason in (found.limit, found.eager):
            if reason:
                self.ui.note(f"{config.model}: {reason}")
        if config.speculation:
            self.ui.advise(*slow_reason(config, llm))
        if note := rounding(llm):
            self.ui.note(note)
        return llm

    def sampling(self) -> SamplingParams:
        """The request parameters that the settings name."""
        from medusakit.settings import SamplingParams

        config = self.config
        return SamplingParams(
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
            min_p=config.min_p,
            repetition_penalty=config.repetition_penalty,
            presence_penalty=config.presence_penalty,
            frequency_penalty=config.frequency_penalty,
            seed=config.seed,
            stop=config.stop,
            acceptance=config.accept,
        )


def slow_reason(config: Config, llm: LLM) -> tuple[str, str]:
    """Why decoding will be slower than with heads although nobody asked for that, and what would change it; two empty
    texts if it will not."""
    parts = llm.parts
    if parts.artifact is None and config.heads != "none" and config.drafter is None:
        drafter = None if parts.withheld else parts.speculation.drafter
        how = f"it drafts from prompt and answer ({drafter.name})" if drafter else "decoding is plain"
        return f"no heads fit {config.model}: {how}", f"medusa train all -m {config.model} --out ./heads"
    weights = parts.runtime.capabilities.weights
    if parts.withheld:
        message = f"speculation is off: with {weights} weights a pass over a tree rounds otherwise than plain decoding"
        return message, "--weights f32   is exact and fast; --budget 4   speculates all the same, up to numerical ties"
    if parts.speculation.budget is not None and parts.speculation.budget.num_nodes == 1:
        message = f"speculation is off: no tree pays with {weights} weights on this machine"
        return message, "--budget 8   speculates all the same; medusa tree show   says what was expected"
    return "", ""


def rounding(llm: LLM) -> str:
    """What the weight format costs against the file; empty if nothing."""
    found = llm.parts.runtime.capabilities
    if not found.requantised:
        return ""
    what = f"{found.weights} weights: {found.requantised} tensors of the file are rounded again"
    return f"{what}, so answers may differ a little from the file's own"


def _recommended(manifest: Path) -> dict[str, Any]:
    """Settings that an artifact's recipe recommends. A broken manifest says so when it is loaded, not here."""
    try:
        recipe = json.loads(manifest.read_text(encoding="utf-8"))["provenance"]["recipe"]
        return dict(recipe.get("defaults", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def current_app() -> App:
    """The `App` of the running command."""
    meta = click.get_current_context().meta
    flags = meta.get(FLAGS_KEY, {})
    return App(flags, quiet="medusakit.quiet" in meta, config_file=meta.get("medusakit.config_file"), env=os.environ)
