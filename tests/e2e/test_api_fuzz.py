"""Requests made up from the OpenAPI document: never an internal error, every refusal in OpenAI's shape."""

import subprocess
import sys
from pathlib import Path

import pytest

from medusakit.engine.jobs import SchedulerSettings
from medusakit.engine.scheduler import Scheduler
from medusakit.server.keys import Keyring
from medusakit.server.service import Options, Service, Serving
from medusakit.settings import SamplingParams
from medusakit.verify.grammar import Grammars
from server_fakes import card_of, listening, random_engine

CHECKS = "not_a_server_error,response_schema_conformance,status_code_conformance"


class HasEngine:
    engine = random_engine(2)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_generated_requests(tmp_path):
    engine = HasEngine.engine
    service = Service(Options(defaults=SamplingParams(max_tokens=4), any_model=True), Keyring(()))
    scheduler = Scheduler(HasEngine(), SchedulerSettings(max_rows=4))
    scheduler.start()
    grammars = Grammars(engine.tokenizer, 258)
    service.opened(Serving(scheduler, engine.tokenizer, card_of(engine.runtime), grammars=grammars))
    program = Path(sys.executable).parent / "schemathesis"
    with listening(service) as url:
        command = [program, "run", f"{url}/openapi.json", "--max-examples", "200", "--checks", CHECKS, "--seed", "1"]
        command += ["--exclude-path", "/admin/heads"]  # this server has no heads to open: it says 503
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    scheduler.close()
    assert done.returncode == 0, done.stdout
