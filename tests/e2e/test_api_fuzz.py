"""Thousands of requests made up from the OpenAPI document: never an internal error, every refusal in OpenAI's shape."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fuzzing import NO_HEADS, answering
from server_fakes import listening

CHECKS = "not_a_server_error,response_schema_conformance,status_code_conformance"
AT_LEAST = 2000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_generated_requests(tmp_path):
    program, report = Path(sys.executable).parent / "schemathesis", tmp_path / "report.json"
    with answering() as service, listening(service) as url:
        command = [program, "run", f"{url}/openapi.json", "--max-examples", "200", "--checks", CHECKS, "--seed", "1"]
        command += ["--exclude-path", NO_HEADS, "--report-json-path", report]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    cases = json.loads(report.read_text())["test_cases"]
    assert cases["generated"] >= AT_LEAST, cases
    assert (cases["with_failures"], cases["errored"]) == (0, 0), cases
