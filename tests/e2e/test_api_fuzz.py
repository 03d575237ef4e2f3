"""Thousands of requests made up from the OpenAPI document: never an internal error, every refusal in OpenAI's shape."""

from __future__ import annotations

from collections import Counter

import pytest

from fuzzing import ask_all, described

EXAMPLES = 500  # of each route that takes a body or a name; as many again of bodies made right
AT_LEAST = 2000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_generated_requests(capsys: pytest.CaptureFixture[str]) -> None:
    with described() as schema:
        found = ask_all(schema, EXAMPLES)
    statuses = sum(found.values(), Counter[int]())
    with capsys.disabled():
        print(f"\n{statuses.total()} requests to {len(found)} operations: {dict(sorted(statuses.items()))}")
        for operation, counted in found.items():
            print(f"  {counted.total():5}  {operation}  {dict(sorted(counted.items()))}")
    assert statuses.total() >= AT_LEAST
    assert not any(status >= 500 for status in statuses)
    assert all(found.values()), "an operation that was never asked"
    asked = [found[f"POST {path}"] for path in ("/v1/chat/completions", "/v1/completions", "/medusa/generate")]
    assert all(one[200] >= one.total() // 4 for one in asked), "too few get as far as an answer"
