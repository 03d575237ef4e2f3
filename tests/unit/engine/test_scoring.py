"""Scores of a prompt's tokens: those of the model's own distribution, however the prompt is cut into chunks."""

import numpy as np
import pytest

from engine_fakes import VOCAB, LetterTokenizer
from medusakit.engine.controller import PlainController
from medusakit.engine.engine import Engine
from medusakit.errors import UsageError
from medusakit.runtimes.reference import random_reference
from medusakit.settings import SamplingParams

PROMPT = [int(token) for token in np.random.default_rng(0).integers(0, VOCAB, 150)]


def engine():
    return Engine(random_reference(5, VOCAB, context_length=256, max_rows=2), LetterTokenizer(), PlainController())


def log_softmax(logits):
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


@pytest.mark.parametrize("chunk", [None, 1, 40, 64, 100])
def test_each_token_after_the_first_has_its_score(chunk):
    found = engine()
    prefill = found.begin(PROMPT, SamplingParams(max_tokens=3, logprobs=2, score_prompt=True))
    session = found.advance(prefill) if chunk is None else None
    while session is None:
        session = found.advance(prefill, chunk)
    for _ in found.run(session):
        pass
    scores = session.result().prompt_scores
    assert len(scores) == len(PROMPT) - 1
    other = engine()
    row = other.runtime.add_row()
    for place in (0, 1, 62, 63, 64, 65, 127, 148):
        other.runtime.truncate(row, 0)
        expected = log_softmax(other.runtime.prefill(row, PROMPT[: place + 1]).logits(0))
        assert scores[place].logprob == pytest.approx(float(expected[PROMPT[place + 1]]), abs=1e-5)
        best = np.argsort(-expected)[:2]
        assert [token for token, _ in scores[place].top] == best.tolist()


def test_the_answer_is_that_of_an_unscored_prompt():
    texts = []
    for scored in (True, False):
        found = engine()
        session = found.start(PROMPT, SamplingParams(max_tokens=20, logprobs=0, score_prompt=scored))
        for _ in found.run(session):
            pass
        texts.append(session.result().text)
    assert texts[0] == texts[1]


def test_scores_are_log_probabilities():
    with pytest.raises(UsageError, match="score_prompt needs logprobs"):
        SamplingParams(score_prompt=True).validate()
