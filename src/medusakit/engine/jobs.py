"""What the scheduler is given and what it tells: jobs, updates, settings, and its state as plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from medusakit.engine.events import GenerationResult, TokenEvent
from medusakit.engine.guard import Round
from medusakit.engine.plan import Plan
from medusakit.errors import MedusaError
from medusakit.settings import SamplingParams

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """One sequence to decode. The n answers of a request are n jobs of the same ids, `params.choice` 0 .. n - 1.

    key            tenant (an API key's id): cached KV never crosses keys, and waiting keys take turns
    speculation    False: plain decoding, in the same steps as the others
    budget         nodes of this job's trees at most, root included; None: what the controller finds
    deadline_s     seconds from `submit`; None: none
    plan           of this job's own drafter and trees; None: what the controller plans for all
    request        what logs call it
    ending         what totals call its end, from its result; None: the result's finish reason
    """

    ids: tuple[int, ...]
    params: SamplingParams
    key: str = ""
    speculation: bool = True
    budget: int | None = None
    deadline_s: float | None = None
    plan: Plan | None = None
    request: str = ""
    ending: Callable[[GenerationResult], str] | None = None

    def ended(self, result: GenerationResult) -> str:
        return result.finish_reason if self.ending is None else self.ending(result)


@dataclass(frozen=True, slots=True)
class Update:
    """What a job's listener is told, on the inference thread, in order; one update a step.

    events         tokens since the last update; none after a cancel
    result, error  None but in the last update. A job that was cancelled ends with a result (finish_reason "cancelled");
                   one that failed or ran out of time with an error, and a result of what it had emitted until then
                   (None: it was still waiting or in prefill)
    cached_tokens  prompt tokens whose KV came from the prefix cache
    """

    events: tuple[TokenEvent, ...]
    result: GenerationResult | None
    error: MedusaError | None
    cached_tokens: int

    @property
    def last(self) -> bool:
        return self.result is not None or self.error is not None


Listener = Callable[[Update], None]


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """max_rows             sequences decoded together; the model must be loaded with at least as many rows
    max_queue            jobs that may wait beside those; more are refused with QueueFullError
    prefill_chunk        prompt tokens run between two steps of the others
    cache_bytes          KV of finished jobs kept for later ones, all keys together; 0: none (no prefix cache)
    cache_bytes_per_key  the same of one key; None: all of it
    cache_least_tokens   prefixes shorter than this are neither kept nor used
    cache_block_tokens   KV is kept and reused in whole blocks of so many positions
    cache_blocks         blocks kept, all keys together; None: as many as the bytes hold
    """

    max_rows: int = 8
    max_queue: int = 64
    prefill_chunk: int = 64
    cache_bytes: int = 512 * MIB
    cache_bytes_per_key: int | None = None
    cache_least_tokens: int = 16
    cache_block_tokens: int = 1
    cache_blocks: int | None = None


@dataclass(frozen=True, slots=True)
class JobState:
    """One job that is open. `state` is "waiting", "prefill" or "running"; no text and no ids."""

    id: int
    key: str
    state: str
    age_s: float
    num_prompt_tokens: int
    num_prefilled: int
    num_cached_tokens: int
    num_tokens: int
    tau: float
    speculation: bool


@dataclass(frozen=True, slots=True)
class CacheState:
    """The prefix cache. hits, misses: jobs that found a prefix, or none; by key: bytes held now."""

    num_entries: int = 0
    num_bytes: int = 0
    max_bytes: int = 0
    hits: int = 0
    misses: int = 0
    hit_tokens: int = 0
    evictions: int = 0
    bytes_by_key: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters since the start.

    steps        verify passes by mode ("tree": at least one row had drafted nodes; "plain")
    drafts       rows of tree passes that had drafted nodes; draft_tokens, draft_depths: nodes and depths offered there
    accepted     drafted tokens kept; accepted_by_depth[i]: of depth i + 1, offered_by_depth the same of those offered
    row_steps    rows over all passes, and row_tokens what they emitted: tau is their ratio
    finished     jobs by how they ended: finish reasons, and the code of an error
    drafter_failures  by name, the drafters that raised or proposed nonsense
    """

    steps: dict[str, int] = field(default_factory=dict)
    drafts: int = 0
    draft_tokens: int = 0
    draft_depths: int = 0
    accepted: int = 0
    accepted_by_depth: tuple[int, ...] = ()
    offered_by_depth: tuple[int, ...] = ()
    row_steps: int = 0
    row_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    draft_s: float = 0.0
    forward_s: float = 0.0
    other_s: float = 0.0
    prefill_s: float = 0.0
    finished: dict[str, int] = field(default_factory=dict)
    drafter_failures: dict[str, int] = field(default_factory=dict)

    @property
    def tau(self) -> float:
        return self.row_tokens / self.row_steps if self.row_steps else 1.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The scheduler at the end of its last step, for /v1/state and /metrics.

    kv_positions  held by all rows; kv_capacity = max_rows x context; kv_row_bytes: theirs, four bytes a number
    guard_round   the guard's last round of 64 speculative steps, None before the first
    drafting      speculation is switched on, its drafter has not failed and the guard does not rest it
    broken        names of drafters that failed: they rest until heads are swapped or speculation is switched on
    eager         why passes on a device are not replayed graphs (`Capabilities.eager`)
    """

    running: int
    waiting: int
    max_rows: int
    draining: bool
    jobs: tuple[JobState, ...]
    kv_positions: int
    kv_capacity: int
    kv_row_bytes: int
    cache: CacheState
    totals: Totals
    speculation: bool
    drafting: bool
    guard_round: Round | None
    broken: tuple[str, ...] = ()
    eager: str = ""
