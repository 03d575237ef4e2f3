"""A small fixed set of questions with four answers each, scored by lm-eval (EleutherAI) on both models, offline."""

from __future__ import annotations

import logging
from importlib import resources
from typing import Any

from medusakit.errors import MissingExtraError
from medusakit.train.seeds import read_json_lines

TASKS = ("capitals", "opposites", "sums")


def task_scores(model: Any, tokenizer: Any, *, batch_size: int = 16) -> dict[str, float]:
    """Accuracy of each task: the share of questions whose right answer has the highest log-probability.

    model, tokenizer  as transformers loads them
    Raises MissingExtraError without lm-eval.
    """
    try:
        from lm_eval import simple_evaluate
        from lm_eval.models.huggingface import HFLM
        from lm_eval.tasks import TaskManager
    except ImportError as cause:
        raise MissingExtraError(
            f"task scores need lm-eval ({cause.name} is not installed)", hint="pip install 'medusakit[tasks]'"
        ) from cause
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it explains options of its own command line
    lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size)
    with resources.as_file(resources.files("medusakit") / "data" / "tasks.jsonl") as file:
        questions: dict[str, list[dict[str, Any]]] = {task: [] for task in TASKS}
        for _, entry in read_json_lines(file):
            questions[entry.pop("task")].append(entry)
    results = simple_evaluate(
        model=lm,
        tasks=[_task(name, entries) for name, entries in questions.items()],
        task_manager=TaskManager(include_defaults=False),
        bootstrap_iters=0,
        log_samples=False,
        verbosity="ERROR",
    )
    return {task: round(float(results["results"][task]["acc,none"]), 4) for task in TASKS}


def _task(name: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """lm-eval's description of one task whose questions are in memory."""

    def dataset(**_: Any) -> dict[str, Any]:
        from datasets import Dataset

        return {"test": Dataset.from_list(entries)}

    return {
        "task": name,
        "custom_dataset": dataset,
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "question",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
