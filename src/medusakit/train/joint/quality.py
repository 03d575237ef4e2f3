"""The quality report: what joint training did to the model, and what it gained, on conversations held out of it."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from medusakit.artifact.files import sha256_file, write_atomic
from medusakit.errors import MissingExtraError
from medusakit.llm import LLM
from medusakit.settings import SamplingParams
from medusakit.train.joint.merge import HEADS, trained_part
from medusakit.train.joint.net import hidden_states, tuned
from medusakit.train.joint.run import open_accelerator
from medusakit.train.joint.scores import Change, Scores, change, difference, tell
from medusakit.train.joint.speed import decode, ratio
from medusakit.train.joint.stage import TRAINED, JointPlace, read_trained, save_heads, train_heads_and_backbone
from medusakit.train.progress import Meter
from medusakit.train.provenance import backbone_of
from medusakit.train.shards import Sample
from medusakit.train.stages import Values, digest

QUALITY = "quality.json"
_UNREADABLE = (OSError, EOFError, KeyError, ValueError, BadZipFile, zlib.error)
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Kinds:
    """The same of two kinds of answers: drawn from the original model at temperature 1, and written as in training."""

    drawn: Scores
    written: Scores


def quality_stage(at: JointPlace, licenses: Mapping[str, str], out: Path) -> Values:
    """Measure, and write OUT/medusa/quality.json. What is finished (trainings, draws, scores) stays when it is cut."""
    quality = at.config.quality
    inputs = {"trained": sha256_file(at.work / TRAINED), "quality": quality.model_dump(mode="json")}
    file = out / HEADS / QUALITY

    def work() -> Values:
        document = _measure(at, licenses, out)
        write_atomic(file, (json.dumps(document, indent=1) + "\n").encode())
        at.place.book.say("quality", _verdict(document))
        return {"summary": _verdict(document), **document}

    return at.place.book.run("quality", inputs, [file], work)


def _measure(at: JointPlace, licenses: Mapping[str, str], out: Path) -> Values:
    quality = at.config.quality
    calibration, asked = at.held_out()
    prompts = [sample.ids[: sample.prompt_len].tolist() for sample in asked if sample.turn == 0][: quality.prompts]
    baseline, expected = _heads_only(at, calibration, licenses)
    answers = {"drawn": draw(at, prompts, quality.max_new_tokens), "written": asked[: len(prompts)]}
    original = _scores(at, "original", answers, lambda: at.open_backbone().eval())
    joint = _scores(at, "tuned", answers, lambda: _tuned(at), sha256_file(at.work / TRAINED))
    settings = [at.config.naive().model_dump(mode="json", exclude={"quality"}), quality.naive_tokens]
    naive = _scores(at, "naive", answers, lambda: _naive(at), settings) if quality.naive else None
    return {
        "answers": {kind: len(samples) for kind, samples in answers.items()},
        "tokens": {kind: sum(sample.num_generated for sample in samples) for kind, samples in answers.items()},
        "perplexity": _perplexities(original.drawn, joint.drawn, naive.drawn if naive else None),
        "perplexity_written": _perplexities(original.written, joint.written, naive.written if naive else None),
        "agreement": {
            "tuned": round(joint.written.agreement(original.written), 4),
            "naive": round(naive.written.agreement(original.written), 4) if naive else None,
        },
        "tasks": _tasks(at, out) if quality.tasks else {},
        "tau": _taus(at, prompts, baseline, out) | {"expected_heads_only": expected},
    }


def _heads_only(at: JointPlace, calibration: Sequence[Sample], licenses: Mapping[str, str]) -> tuple[Path, Values]:
    """Heads on the untouched model: the same data, and as many passes over it as joint training made in all."""
    recipe, model = at.place.recipe, at.place.model
    heads = at.heads(stages=2, epochs=recipe.heads.epochs * (at.config.stages - 1) + at.config.epochs)
    path = at.work / "heads-only"
    backbone = backbone_of(model.source, model.tokenizer)
    expected = save_heads(path, heads, calibration, at, backbone, source=model.source, licenses=licenses, metrics={})
    return path, dict(expected)


def draw(at: JointPlace, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[Sample]:
    """Answers of the untouched model at temperature 1, one a prompt: draws from its own distribution, on which no
    other model's perplexity is lower in expectation, and the excess is exp KL."""

    def make() -> Arrays:
        meter, ids = Meter("draw", len(prompts), at.place.on_progress, unit="prompts"), list[int]()
        lengths = list[int]()
        with LLM.load(str(at.resolved.path), heads="none", weights="f32", threads=at.place.model.threads) as llm:
            for seed, prompt in enumerate(prompts):
                params = SamplingParams(max_tokens=max_new_tokens, temperature=1.0, seed=seed)
                with llm.stream_ids(prompt, params) as stream:
                    for _ in stream:
                        pass
                    ids += stream.result.token_ids
                    lengths.append(len(stream.result.token_ids))
                meter.report(len(lengths))
        meter.finish(len(lengths), f"{len(ids):,} tokens at temperature 1")
        return {"ids": np.array(ids, np.int32), "lengths": np.array(lengths, np.int64)}

    key = digest([at.place.model.source.fingerprint, list(map(list, prompts)), max_new_tokens])
    kept = _kept(at.work / "drawn.npz", key, make)
    parts = np.split(kept["ids"], np.cumsum(kept["lengths"])[:-1])
    width = at.place.model.source.spec.hidden_size
    return [
        Sample(np.array([*prompt, *part], np.int32), len(prompt), np.zeros((len(part), width), np.float16), number)
        for number, (prompt, part) in enumerate(zip(prompts, parts, strict=True))
    ]


def _scores(
    at: JointPlace,
    who: str,
    answers: Mapping[str, Sequence[Sample]],
    open_model: Callable[[], Any],
    made_of: Any = None,
) -> Kinds:
    """Of one model, which is opened only if they are not there yet: so one is in memory at a time.

    made_of  what the model depends on, beside the original and [heads]
    """

    def make() -> Arrays:
        model = open_model()
        projection = model.get_output_embeddings().weight.detach()
        found: Arrays = {}
        for kind, samples in answers.items():
            told = tell(lambda ids: hidden_states(model, ids), projection, samples, stage=who,
                        on_progress=at.place.on_progress)  # fmt: skip
            found |= {f"{kind}.{name}": value for name, value in asdict(told.scores).items()}
        return found

    ids = [sample.ids.tolist() for samples in answers.values() for sample in samples]
    key = digest([at.place.model.source.fingerprint, at.place.recipe.heads.model_dump(mode="json"), made_of, ids])
    kept = _kept(at.work / f"scores-{who}.npz", key, make)
    return Kinds(**{
        kind: Scores(**{name.partition(".")[2]: value for name, value in kept.items() if name.startswith(f"{kind}.")})
        for kind in answers
    })  # fmt: skip


def _kept(file: Path, key: str, make: Callable[[], Arrays]) -> Arrays:
    """The arrays of a file, made first if it is not there, is damaged or was made of something else."""
    with suppress(*_UNREADABLE), file.open("rb") as data, np.load(data) as stored:
        if str(stored["key"]) == key:
            return {name: stored[name] for name in stored.files if name != "key"}
    made = make()
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, key=np.array(key), **made)
    write_atomic(file, buffer.getvalue())
    return made


def _tuned(at: JointPlace) -> Any:
    return tuned(at.open_backbone(), at.config, trained_part(read_trained(at), "backbone"))


def _naive(at: JointPlace) -> Any:
    config = at.config.naive()
    begun = at.heads(stages=config.stages)
    trained = train_heads_and_backbone(at, config, begun, "naive", open_accelerator(),
                                       tokens=at.config.quality.naive_tokens)  # fmt: skip
    return tuned(at.open_backbone(), config, trained_part(trained, "backbone"))


def _tasks(at: JointPlace, out: Path) -> Values:
    """{task: {original, tuned}}, one model in memory, its adapter on and off; without lm-eval, the reason."""
    from transformers import AutoTokenizer

    from medusakit.train.joint.tasks import task_scores

    tokenizer, model = AutoTokenizer.from_pretrained(out), _tuned(at)
    try:
        joint = task_scores(model.base_model.model, tokenizer)
        with model.disable_adapter():
            original = task_scores(model.base_model.model, tokenizer)
    except MissingExtraError as error:
        at.place.book.say("quality", f"no task scores: {error.message}; {error.hint}")
        return {"not_measured": error.message}
    return {task: {"original": original[task], "tuned": joint[task]} for task in joint}


def _taus(at: JointPlace, prompts: Sequence[Sequence[int]], baseline: Path, out: Path) -> Values:
    quality, place = at.config.quality, at.place
    family = place.recipe.heads.family

    def run(model: Path, heads: Path, stage: str) -> Any:
        return decode(str(model), heads, prompts, family=family, budget=quality.budget, stage=stage,
                      max_new_tokens=quality.max_new_tokens, threads=place.model.threads,
                      on_progress=place.on_progress)  # fmt: skip

    alone = run(at.resolved.path, baseline, "heads only")
    both = run(out, out / HEADS, "joint")
    found, low, high = ratio(both, alone)
    return {
        "heads_only": round(alone.tau, 4),
        "joint": round(both.tau, 4),
        "ratio": {"value": round(found, 4), "low": round(low, 4), "high": round(high, 4)},
        "budget": quality.budget,
        "prompts": len(prompts),
    }


def _perplexities(original: Scores, joint: Scores, naive: Scores | None) -> Values:
    """Perplexities, and their changes in per cent with 95 % intervals over conversations."""

    def shown(found: Change) -> Values:
        return asdict(found)

    values: Values = {"original": round(original.perplexity, 4), "tuned": round(joint.perplexity, 4)}
    changes = {"tuned": shown(change(joint, original))}
    if naive is not None:
        values["naive"] = round(naive.perplexity, 4)
        changes["naive"] = shown(change(naive, original))
        changes["naive_above_tuned"] = shown(difference(naive, joint, original))
    return {**values, "change_percent": changes}


def _verdict(document: Values) -> str:
    tau, moved = document["tau"], document["perplexity"]["change_percent"]["tuned"]
    gain = tau["ratio"]["value"]
    return (f"{tau['joint']:.2f} tokens a step, heads alone {tau['heads_only']:.2f} ({gain:.2f} times); "
            f"perplexity {moved['percent']:+.2f} % ({moved['low']:+.2f} to {moved['high']:+.2f})")  # fmt: skip
