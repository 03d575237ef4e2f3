"""A conversation that keeps the KV of its earlier turns."""

from __future__ import annotations

from typing import Protocol

from medusakit.engine.engine import Engine, KeptRow
from medusakit.engine.prompt import short
from medusakit.engine.session import Session
from medusakit.engine.stream import Stream
from medusakit.errors import UsageError
from medusakit.settings import SamplingParams
from medusakit.text.chat import chat_ids
from medusakit.text.tokenizer import Tokenizer


class Speaker(Protocol):
    """An `LLM`, which lies above this package."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def engine(self) -> Engine: ...

    def engine_of(self, speculation: bool) -> Engine: ...


class Chat:
    """Turns of one conversation. Of each turn, only what the KV does not hold yet is prefilled."""

    def __init__(self, llm: Speaker, system: str | None, params: SamplingParams) -> None:
        self._llm = llm
        self._system = system
        self.params = params
        self.messages: list[dict[str, str]] = []
        self._kept: KeptRow | None = None
        self.clear()

    def clear(self) -> None:
        """Forget the conversation."""
        self.messages = [{"role": "system", "content": self._system}] if self._system else []
        self._release()

    def send(self, text: str, *, speculation: bool = True) -> ChatTurn:
        """Ask; iterate the turn for its events. The answer joins the history when the turn ends or is closed."""
        if not isinstance(text, str):
            raise UsageError(f"the message is {short(text)}, expected a text", hint='chat.send("And in Python?")')
        if not text.strip():
            raise UsageError("the message is empty", hint="type a question, or /exit to leave")
        engine = self._llm.engine_of(speculation)
        self.messages.append({"role": "user", "content": text})
        kept, self._kept = self._kept, None
        try:
            session = engine.start(chat_ids(self._llm.tokenizer, self.messages), self.params, kept)
        except BaseException:
            self.messages.pop()
            raise
        return ChatTurn(self, engine, session)

    def close(self) -> None:
        self._release()

    def _ended(self, engine: Engine, session: Session) -> None:
        self._kept = engine.keep(session)
        self.messages.append({"role": "assistant", "content": session.result().text})

    def _release(self) -> None:
        if self._kept is not None:
            self._llm.engine.release(self._kept)
            self._kept = None


class ChatTurn(Stream):
    """One answer of a chat."""

    def __init__(self, chat: Chat, engine: Engine, session: Session) -> None:
        super().__init__(engine, session)
        self._chat = chat

    def close(self) -> None:
        if self._open:
            self._open = False
            self._chat._ended(self._engine, self._session)
