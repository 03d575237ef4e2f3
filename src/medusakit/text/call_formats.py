"""How models write calls of functions, as their chat templates teach it.

A format is texts around a name and its arguments: a JSON object, or the values of parameters between tags. Some of
these texts are control tokens in one vocabulary and plain characters in another (`<tool_call>`); the spelling is the
same, so everything here is spelling.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Tags:
    """Arguments as parameters one after the other: opens KEY middle VALUE pad closes after. A string is written as it
    is, without `closes` in it; every other value is JSON (text/call_values.py)."""

    opens: str
    middle: str
    pad: str
    closes: str
    after: str

    def named(self, parameter: str) -> str:
        """A parameter up to its value."""
        return self.opens + parameter + self.middle


@dataclass(frozen=True, slots=True)
class CallFormat:
    """An answer with calls is [text] marker opens CALL [between CALL]... closes, CALL being head NAME [id_mark ID]
    middle ARGUMENTS tail.

    marker     where it stands, calls begin; empty: an answer that begins with `head` is a call
    spaced     a space may stand after the marker (SentencePiece models put one there)
    between    None: there is one call at most
    signs      what a chat template of this format has in it; lacks: what it has not
    id_length  characters (letters and digits) of a call's id, where templates insist on it
    id_mark    what stands before the id where the model writes it; empty: it writes none
    tags       how arguments are written; None: as a JSON object
    """

    name: str
    marker: str
    opens: str
    head: str
    middle: str
    tail: str
    between: str | None
    closes: str
    signs: tuple[str, ...]
    lacks: tuple[str, ...] = ()
    spaced: bool = False
    id_length: int | None = None
    id_mark: str = ""
    tags: Tags | None = None

    @property
    def start(self) -> str:
        """What tells a call from text."""
        return self.marker or self.head

    def named(self, function: str) -> str:
        """A call up to the end of what tells its function."""
        return self.head + function + (self.id_mark or self.middle)


_ARGUMENTS = ('{"name": "', '", "arguments": ', "}")

_MISTRAL_ARGS = CallFormat(
    "mistral-args",
    "[TOOL_CALLS]",
    "",
    "",
    "[ARGS]",
    "",
    between="[TOOL_CALLS]",
    closes="",
    signs=("[TOOL_CALLS]", "[ARGS]"),
    lacks=("[CALL_ID]",),
    id_length=9,
)
_GLM45 = CallFormat(
    "glm45",
    "<tool_call>",
    "",
    "",
    "\n",
    "",
    between="</tool_call>\n<tool_call>",
    closes="</tool_call>",
    signs=("<tool_call>", "<arg_key>", "<arg_value>"),
    lacks=("</arg_key><arg_value>",),
    tags=Tags("<arg_key>", "</arg_key>\n<arg_value>", "", "</arg_value>", "\n"),
)

FORMATS = (
    CallFormat(
        "hermes",
        "<tool_call>",
        "\n",
        *_ARGUMENTS,
        between="\n</tool_call>\n<tool_call>\n",
        closes="\n</tool_call>",
        signs=("<tool_call>", "arguments"),
        lacks=("<tool_call>[", "<function=", "<arg_key>"),
    ),
    CallFormat(
        "mistral",
        "[TOOL_CALLS]",
        "[",
        *_ARGUMENTS,
        between=", ",
        closes="]",
        signs=("[TOOL_CALLS]",),
        lacks=("[ARGS]",),
        spaced=True,
        id_length=9,
    ),
    _MISTRAL_ARGS,
    replace(_MISTRAL_ARGS, name="mistral-id", signs=(*_MISTRAL_ARGS.signs, "[CALL_ID]"), lacks=(), id_mark="[CALL_ID]"),
    CallFormat(
        "qwen3-coder",
        "<tool_call>",
        "\n",
        "<function=",
        ">\n",
        "</function>",
        between="\n</tool_call>\n<tool_call>\n",
        closes="\n</tool_call>",
        signs=("<tool_call>", "<function=", "<parameter="),
        lacks=("<tool_call><function=",),
        tags=Tags("<parameter=", ">\n", "\n", "</parameter>", "\n"),
    ),
    _GLM45,
    replace(  # without line breaks
        _GLM45,
        name="glm47",
        middle="",
        between="</tool_call><tool_call>",
        signs=("<tool_call>", "</arg_key><arg_value>"),
        lacks=(),
        tags=Tags("<arg_key>", "</arg_key><arg_value>", "", "</arg_value>", ""),
    ),
    CallFormat(
        "llama3",
        "",
        "",
        '{"name": "',
        '", "parameters": ',
        "}",
        between=None,
        closes="",
        signs=("<|start_header_id|>", "ipython", "parameters"),
    ),
)
BY_NAME = {one.name: one for one in FORMATS}


def format_of(template: str) -> CallFormat | None:
    """The format that a chat template writes calls in; None for one that is not known."""
    return next((one for one in FORMATS if _fits(one, template)), None)


def _fits(one: CallFormat, template: str) -> bool:
    return all(sign in template for sign in one.signs) and not any(sign in template for sign in one.lacks)
