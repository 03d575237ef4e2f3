"""Recipes, stage markers and provenance: strict about keys, honest about changes, free of this machine's folders."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from medusakit.errors import ConfigError, DatasetError
from medusakit.train.progress import Meter, Progress
from medusakit.train.provenance import git_revision, provenance
from medusakit.train.recipe import DEFAULT_TOKENS, Recipe, read_recipe
from medusakit.train.stages import StageBook, changes

RECIPES = Path(__file__).parents[3] / "recipes"


@pytest.mark.parametrize("file", sorted(RECIPES.rglob("*.toml")), ids=lambda path: path.stem)
def test_committed_recipes_are_complete_and_portable(file: Path) -> None:
    recipe = read_recipe(file)
    names = (*recipe.seeds.files, *recipe.seeds.answered, *recipe.capture)
    assert names and all(Path(name).is_relative_to(RECIPES) for name in names)
    assert recipe.weights == "f32" and recipe.distill.max_tokens >= 100_000
    assert file.stem in (recipe.heads.family, "joint")
    assert "/" not in recipe.model


def test_defaults_need_no_file() -> None:
    recipe = Recipe()
    assert recipe.distill.max_tokens == DEFAULT_TOKENS and recipe.seeds.files == () and recipe.model == "smollm2"


def test_file_names_are_relative_to_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "r.toml").write_text('capture = ["a.jsonl"]\n[seeds]\nfiles = ["a.jsonl"]\n')
    recipe = read_recipe(tmp_path / "r.toml")
    assert recipe.capture == recipe.seeds.files == (str(tmp_path / "a.jsonl"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[distill]\nmax_new_token = 3", "unknown key distill.max_new_token, did you mean max_new_tokens"),
        ('modell = "x"', "unknown key modell, did you mean model"),
        ("[distill]\nrows = 0", "distill.rows"),
        ("[heads]\nlearning_rate = -1", "heads.learning_rate"),
        ("[heads]\nlearning_rate = inf", "heads.learning_rate"),
        ("[heads]\nepochs = 1e400", "heads.epochs"),
        ("[heads]\nseed = -1", "heads.seed"),
        ("[joint]\nlambda0 = inf", "joint.lambda0"),
        ("[seeds", "is not TOML"),
        ("a = " + "[" * 50_000, "is not TOML"),
        ('capture = ["nowhere.jsonl"]', "nowhere.jsonl, which is not there"),
    ],
)
def test_a_bad_recipe_names_the_key(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_recipe(tmp_path / "r.toml")


def test_a_missing_recipe_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recipe(tmp_path / "none.toml")


def test_a_stage_runs_once_until_its_inputs_or_outputs_change(tmp_path: Path) -> None:
    said: list[str] = []
    book = StageBook(tmp_path, lambda progress: said.append(progress.note))
    output, ran = tmp_path / "out", []

    def work() -> dict[str, object]:
        ran.append(1)
        output.write_text("x")
        return {"summary": "3 things"}

    for value in (1, 1, 2):
        assert book.run("heads-x", {"rate": value, "deep": {"a": (1, 2)}}, [output], work) == {"summary": "3 things"}
    assert len(ran) == 2 and said == ["already done (3 things)", "made again: rate 1 -> 2"]
    output.unlink()
    book.run("heads-x", {"rate": 2, "deep": {"a": [1, 2]}}, [output], work)
    assert len(ran) == 3 and "its files are gone" in said[-1]


def test_a_stage_that_fails_leaves_no_marker(tmp_path: Path) -> None:
    book = StageBook(tmp_path, lambda progress: None)

    def fail() -> dict[str, object]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        book.run("seeds", {}, [], fail)
    with pytest.raises(DatasetError, match="the stage seeds is not finished") as caught:
        book.result("seeds")
    assert caught.value.hint == f"medusa train seeds --work {tmp_path}"


def test_a_damaged_marker_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "seeds.done.json").write_text('{"inputs":')
    ran: list[int] = []
    StageBook(tmp_path, lambda progress: None).run("seeds", {}, [], lambda: ran.append(1) or {})  # type: ignore[func-returns-value]
    assert ran == [1]


def test_changes_name_nested_keys() -> None:
    assert (
        changes({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 5}, "e": 4})
        == "a.c 2 -> 5, d 3 -> null, e null -> 4"
    )


def test_provenance_says_what_made_it() -> None:
    made = provenance(
        {"model": "smollm2"},
        train_tokens=7,
        metrics={"x": 1},
        licenses={"s": "MIT"},
        now=datetime(2026, 1, 2, tzinfo=UTC),
    )
    assert made.created == "2026-01-02T00:00:00+00:00" and made.train_tokens == 7
    assert made.recipe["settings"] == {"model": "smollm2"} and made.recipe["licenses"] == {"s": "MIT"}
    assert {"numpy", "onnxruntime"} <= made.recipe["versions"].keys() and made.recipe["machine"]


def test_git_revision_is_that_of_a_checkout_only(tmp_path: Path) -> None:
    package = tmp_path / "repo/src/medusakit"
    package.mkdir(parents=True)
    assert git_revision(package) is None
    git = ["git", "-C", str(tmp_path / "repo"), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    (package / "x.py").write_text("1")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x", "--no-gpg-sign"]):
        subprocess.run([*git, *command], check=True)
    revision = git_revision(package)
    assert revision is not None and len(revision) == 40
    (package / "x.py").write_text("2")
    assert git_revision(package) == f"{revision}-dirty"
    inside_a_venv = tmp_path / "repo/.venv/lib/medusakit"
    inside_a_venv.mkdir(parents=True)
    assert git_revision(inside_a_venv) is None


def test_meter_rates_only_what_this_run_did() -> None:
    seen: list[Progress] = []
    now = [0.0]
    meter = Meter("x", 100, seen.append, clock=lambda: now[0], every_s=1.0)
    for at, done in ((0.0, 40), (0.5, 45), (2.0, 60)):
        now[0] = at
        meter.report(done)
    now[0] = 4.0
    meter.finish(100, "good")
    assert [p.done for p in seen] == [40, 60, 100]
    assert seen[1].rate == 10.0 and seen[1].remaining_s == 4.0
    assert seen[2].finished and seen[2].remaining_s == 0.0 and seen[2].note == "good"
