"""One line of JSON a request. Never a prompt, an answer or a key."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

LOGGER = logging.getLogger("medusakit.server")


def log(event: str, **fields: Any) -> None:
    LOGGER.info(event, extra={"fields": {name: value for name, value in fields.items() if value is not None}})


class JsonLines(logging.Formatter):
    """{"time", "level", "event", ...fields}; an error's traceback under "error"."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
