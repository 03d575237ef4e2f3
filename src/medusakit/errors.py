"""Every error that a person may see, in one tree.

MedusaError
├── UsageError          exit 2   a flag, an argument, a request
│   ├── ConfigError              a key or value in a configuration source
│   └── FormError                a form of answers (a JSON schema) that cannot be followed
├── ModelError          exit 3   a model file: missing, truncated, foreign
│   ├── UnsupportedModelError    a family, a tensor type, a tokenizer kind
│   └── TokenizerError
├── ArtifactError       exit 3   a heads folder: missing, broken
│   └── ArtifactMismatchError    heads of another model
├── DatasetError        exit 3   training data: missing, damaged, of another model, or not allowed
├── RuntimeFailure      exit 4   the machine: memory, disk, threads, a kernel
│   ├── ContextLengthError       a prompt that does not fit
│   ├── QueueFullError           more requests wait than may
│   ├── DrainingError            the scheduler takes no new requests
│   └── DeadlineError            a request was not done in the time it had
├── CacheError          exit 4   MEDUSA_HOME cannot be read or written
└── MissingExtraError   exit 4   an optional dependency that is not installed
"""

from __future__ import annotations

# Hints that errors of a model's files share: it is damaged or contradicts itself; it is whole, but nothing for us; it
# is no model at all.
FETCH_AGAIN = "download or convert the model again; medusa models list   names some that run"
OTHER_MODEL = "medusa models list   names models that run"
GIVE_A_MODEL = "-m with a .gguf file or a Hugging Face folder; medusa models list   names models that run"


class MedusaError(Exception):
    """Root of the tree. `hint` is a command or a value that would work; `code` is stable."""

    code = "medusa_error"
    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  try: {self.hint}"


class UsageError(MedusaError):
    """A flag, an argument or a request that cannot be meant."""

    code = "usage"
    exit_code = 2


class ConfigError(UsageError):
    """An unknown key or a value out of range in a configuration source."""

    code = "config"


class FormError(UsageError):
    """A form of answers that is none, asks for what is not known, or is too much work."""

    code = "invalid_schema"


class ModelError(MedusaError):
    """A model that cannot be found or read."""

    code = "model"
    exit_code = 3


class UnsupportedModelError(ModelError):
    """A model family, tensor type or feature that this version does not run."""

    code = "unsupported_model"


class TokenizerError(ModelError):
    """A tokenizer that cannot be built from the model's files."""

    code = "tokenizer"


class ArtifactError(MedusaError):
    """A heads folder that cannot be read."""

    code = "artifact"
    exit_code = 3


class ArtifactMismatchError(ArtifactError):
    """Heads trained for another model: width, vocabulary or fingerprint differ."""

    code = "artifact_mismatch"


class DatasetError(MedusaError):
    """Training data that cannot be used: damaged shards, another model's states, a benchmark's prompt."""

    code = "dataset"
    exit_code = 3


class RuntimeFailure(MedusaError):
    """The machine could not do it: memory, disk, a kernel."""

    code = "runtime"
    exit_code = 4


class ContextLengthError(RuntimeFailure):
    """Prompt and answer do not fit the model's context."""

    code = "context_length_exceeded"


class QueueFullError(RuntimeFailure):
    """As many requests wait as may. `retry_after_s`: when a place should be free, by what requests took so far."""

    code = "queue_full"

    def __init__(self, message: str, *, retry_after_s: float, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class DrainingError(RuntimeFailure):
    """The scheduler ends (or has not begun): no new requests."""

    code = "draining"


class DeadlineError(RuntimeFailure):
    """A request was not done in the time that it had."""

    code = "deadline_exceeded"


class CacheError(RuntimeFailure):
    """The cache folder (MEDUSA_HOME) cannot be read or written."""

    code = "cache"


class MissingExtraError(RuntimeFailure):
    """An optional dependency is missing; the hint is the pip command."""

    code = "missing_extra"
