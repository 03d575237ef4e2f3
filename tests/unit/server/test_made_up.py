"""Dozens of requests made up from the OpenAPI document, in this process; tests/e2e/test_api_fuzz.py makes thousands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from fuzzing import NO_HEADS, answering
from medusakit.server.app import create_app
from medusakit.server.wire import ErrorReply

EXAMPLES = 8  # of each route, half of them wrong on purpose
CHECKS = [not_a_server_error, response_schema_conformance, status_code_conformance]


@pytest.fixture(scope="module")
def schema() -> Iterator[schemathesis.BaseSchema]:
    with answering() as service:
        yield schemathesis.openapi.from_asgi("/openapi.json", create_app(service)).exclude(path=NO_HEADS)


def test_no_request_breaks_the_server(schema: schemathesis.BaseSchema) -> None:
    sent: Counter[str] = Counter()
    for found in schema.get_all_operations():
        operation = found.ok()
        cases = operation.as_strategy(GenerationMode.POSITIVE)
        if operation.body or operation.path_parameters:
            cases |= operation.as_strategy(GenerationMode.NEGATIVE)

        @seed(1)
        @settings(
            max_examples=EXAMPLES,
            phases=[Phase.generate],
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases)
        def ask(case: Case) -> None:
            response = case.call()
            case.validate_response(response, checks=CHECKS)
            check_error(response)
            sent[case.operation.label] += 1

        ask()
    assert sent.total() >= 60, sent


def check_error(response: Response) -> None:
    """Every refusal is in OpenAI's shape."""
    if response.status_code >= 400:
        error = ErrorReply.model_validate_json(response.content).error
        assert error.message and error.type and error.code
