"""The fields of a request that offer functions to the model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from medusakit.server.strict import Wire

MAX_TOOLS = 128


class FunctionDefinition(Wire):
    """parameters: JSON schema of the arguments, an object's; left out: there are none. strict: refuse a schema of which
    something cannot be followed; else that is left out."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Wire):
    type: Literal["function"]
    function: FunctionDefinition

    def plain(self) -> dict[str, Any]:
        """As chat templates know it."""
        told = {"description": self.function.description, "parameters": self.function.parameters}
        given = {key: value for key, value in told.items() if value is not None}
        return {"type": self.type, "function": {"name": self.function.name, **given}}


class FunctionName(Wire):
    name: str


class NamedFunction(Wire):
    """This function must be called."""

    type: Literal["function"]
    function: FunctionName


class AllowedFunctions(Wire):
    """mode: whether one of them must be called."""

    mode: Literal["auto", "required"]
    tools: list[NamedFunction] = Field(min_length=1, max_length=MAX_TOOLS)


class AllowedTools(Wire):
    """Only these functions may be called; the model is shown all."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedFunctions


def _kind(value: object) -> str:
    if not isinstance(value, dict | NamedFunction | AllowedTools):
        return "a word"
    named = value.get("type") if isinstance(value, dict) else value.type
    return "some functions" if named == "allowed_tools" else "a function"


# tags are no names, so that errors can leave them out of the place
ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("a word")]
    | Annotated[NamedFunction, Tag("a function")]
    | Annotated[AllowedTools, Tag("some functions")],
    Discriminator(_kind),
]
