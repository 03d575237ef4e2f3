"""The Python face: load a model with its heads, generate, stream, chat.

>>> from medusakit import LLM                                   # doctest: +SKIP
>>> llm = LLM.load("smollm2")                                   # doctest: +SKIP
>>> for event in llm.stream("Explain a B-tree in two sentences"):
...     print(event.text, end="")                               # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

from medusakit.engine.choices import Choices
from medusakit.engine.controller import ChosenController, Controller, PlainController
from medusakit.engine.conversation import Chat
from medusakit.engine.engine import Engine
from medusakit.engine.events import GenerationResult
from medusakit.engine.loading import Loaded, load_parts
from medusakit.engine.plan import Plan
from medusakit.engine.prompt import Prompt, prompt_ids, short, token_ids
from medusakit.engine.stream import Stream
from medusakit.engine.wishes import MAX_LEAVES, RuntimeWishes, Wishes
from medusakit.errors import UsageError
from medusakit.runtimes.base import Runtime
from medusakit.settings import SamplingParams
from medusakit.text.tokenizer import Tokenizer
from medusakit.tree.given import AUTO, TreeWish, checked
from medusakit.verify.grammar import Grammars

GREEDY = SamplingParams()


class LLM:
    """A loaded model with (or without) heads. One thread at a time; rows of several streams advance together."""

    def __init__(self, parts: Loaded) -> None:
        self.parts = parts
        self.engine = Engine(parts.runtime, parts.tokenizer, parts.speculation.controller)
        self.choices = Choices(parts, parts.artifact, parts.wishes)
        self._plain = Engine(parts.runtime, parts.tokenizer, PlainController())
        self._chosen = Engine(parts.runtime, parts.tokenizer, ChosenController())
        self._grammars = Grammars(parts.tokenizer, parts.runtime.spec.vocab_size)
        self._open = True

    @classmethod
    def load(
        cls,
        model: str = "smollm2",
        *,
        heads: str = "auto",
        weights: str = "auto",
        drafter: str | None = None,
        draft_model: str | None = None,
        tree: TreeWish = AUTO,
        budget: int | None = None,
        dynamic_tree: bool = True,
        max_leaves: int = MAX_LEAVES,
        breaker_rho: float | None = None,
        threads: int | None = None,
        max_context: int | None = None,
        max_rows: int = 1,
        offline: bool = False,
        align_position_embed: bool = False,
        runtime: str = "onnx",
        device_map: str | None = None,
    ) -> LLM:
        """Load a model and the heads that fit it.

        model    alias, path, .gguf, Hugging Face folder or hub id
        heads    "auto" (packaged, or beside the model), "none", or an artifact folder
        weights  "auto" (follows the file), f32, int8, int4; of the torch runtime "auto", f32, bf16, f16
        drafter  "hybrid" (default): the heads and matches of the text (without heads, matches and recycled successors),
                 merged into one tree; a family of heads alone ("hydra", "medusa"); "suffix" or "recycling" alone;
                 "draft_model": a second model, `draft_model`, smaller and of the same vocabulary
        tree     "auto", "dynamic", "static" (calibrated), "DxB", e.g. "2x3", or paths of ranks: [[0], [1], [0, 0]]
        budget   rows of a verify pass at most, root included, and no guard; None takes what pays by measured T(n)
        dynamic_tree  grow trees anew at every step from the drafters' probabilities; False: the heads' calibrated tree
        max_leaves    leaves of a tree that is grown
        breaker_rho   decode plainly after three rounds of 64 steps with rho_eff under this; None: by measured speed
        offline  never ask the network for a hub id
        align_position_embed  run the model with the rope that the heads were trained with, where its config differs
        runtime  "onnx" (this CPU), or "torch": any causal model of transformers (pip install 'medusakit[torch]')
        device_map  of the torch runtime, as transformers takes it: "auto", "cuda:0"
        Raises ModelError, ArtifactError, RuntimeFailure; each says what would work.
        """
        parts = load_parts(
            model,
            RuntimeWishes(runtime, device_map, weights, threads, max_rows, max_context),
            Wishes(drafter, checked(tree), budget, dynamic_tree, max_leaves, breaker_rho, draft_model),
            heads=heads,
            offline=offline,
            align_position_embed=align_position_embed,
        )
        return cls(parts)

    @property
    def runtime(self) -> Runtime:
        return self.parts.runtime

    @property
    def tokenizer(self) -> Tokenizer:
        return self.parts.tokenizer

    @property
    def grammars(self) -> Grammars:
        """Forms of answers, for `SamplingParams(grammar=llm.grammars.json_schema({...}))`. Needs medusakit[grammar]."""
        return self._grammars

    def use_chat_template(self, template: str) -> None:
        """Write prompts through this jinja template from now on, instead of the model's own."""
        self.parts = replace(self.parts, tokenizer=self.parts.tokenizer.with_template(template))

    @property
    def controller(self) -> Controller:
        return self.parts.speculation.controller

    def engine_of(self, speculation: bool) -> Engine:
        """The engine that drafts, or plain decoding through the same kernels. Raises UsageError after `close`."""
        if not self._open:
            raise UsageError("this LLM is closed: the model's memory was given back", hint='llm = LLM.load("smollm2")')
        return self.engine if speculation else self._plain

    def encode(self, prompt: Prompt, *, raw: bool = False) -> list[int]:
        """Prompt ids: text becomes one user message in the model's chat template; `raw` takes it as it is."""
        return prompt_ids(self.tokenizer, prompt, raw=raw)

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams = GREEDY,
        *,
        speculation: bool = True,
        raw: bool = False,
        drafter: str | None = None,
        tree: TreeWish | None = None,
    ) -> Stream:
        """Start a generation. The first event is decided when this returns (prefill is done).

        drafter, tree  of this answer alone, as `load` takes them, of the drafters that there are (`choices.names`).
                       They draft at every step, whether it pays or not; the text is the same with any of them
        Raises UsageError for what there is not.
        """
        ids = self.encode(prompt, raw=raw)
        return self.stream_ids(ids, params, speculation=speculation, drafter=drafter, tree=tree)

    def stream_ids(
        self,
        ids: Sequence[int],
        params: SamplingParams = GREEDY,
        *,
        speculation: bool = True,
        drafter: str | None = None,
        tree: TreeWish | None = None,
    ) -> Stream:
        """Like `stream`, from token ids: whole numbers of Python, NumPy or another library, all in the vocabulary."""
        engine = self.engine_of(speculation)
        ids = token_ids(ids, self.runtime.spec.vocab_size)
        plan = self._plan(speculation, drafter, tree)
        if plan is not None:
            return Stream(self._chosen, self._chosen.start(ids, params, plan=plan))
        return Stream(engine, engine.start(ids, params))

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams = GREEDY,
        *,
        speculation: bool = True,
        raw: bool = False,
        drafter: str | None = None,
        tree: TreeWish | None = None,
    ) -> GenerationResult:
        """The whole answer; arguments as of `stream`."""
        with self.stream(prompt, params, speculation=speculation, raw=raw, drafter=drafter, tree=tree) as stream:
            for _ in stream:
                pass
            return stream.result

    def _plan(self, speculation: bool, drafter: str | None, tree: TreeWish | None) -> Plan | None:
        if drafter is None and tree is None:
            return None
        if not speculation:
            raise UsageError("drafter and tree say how to speculate, which is off", hint="speculation=True")
        return self.choices.plan(drafter, tree)

    def chat(self, system: str | None = None, params: SamplingParams = GREEDY) -> Chat:
        """A conversation that keeps the KV of its earlier turns. Raises UsageError for a system message of no text."""
        if system is not None and not isinstance(system, str):
            raise UsageError(f"the system message is {short(system)}, expected a text", hint='llm.chat("Be brief.")')
        return Chat(self, system, params)

    def reset_verification_params(self) -> None:
        """Drop what decoding has learnt from the steps so far: calibrations, pauses, the circuit breaker's state, and
        the verify temperatures of dynamic acceptance. To be called when other heads have been put in.
        """
        self.engine.reset_verification()
        self._chosen.reset_verification()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the memory of the model; it cannot decode any more. `with LLM.load(...) as llm:` does it too."""
        if not self._open:
            return
        self._open = False
        self.parts.runtime.close()
        if self.parts.second is not None:
            self.parts.second.close()
