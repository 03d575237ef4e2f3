"""Dozens of requests made up from the OpenAPI document, in this process; tests/e2e/test_api_fuzz.py makes thousands."""

from __future__ import annotations

from fuzzing import ask_all, described

EXAMPLES = 8  # of each route


def test_no_request_breaks_the_server() -> None:
    with described() as schema:
        found = ask_all(schema, EXAMPLES)
    assert sum(statuses.total() for statuses in found.values()) >= 60, found
    assert all(found.values()), found
