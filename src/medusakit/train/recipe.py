"""A recipe: one TOML file that says how a drafter was made and makes it again.

model = "smollm2"          # alias, file, folder or hub id
capture = ["answers.jsonl.gz"]
[seeds]                    # train/seeds.py        SeedConfig
[distill]                  # train/distill.py      DistillConfig
[endpoint]                 # train/endpoint_answers.py EndpointConfig, only where a server answers
[heads]                    # train/heads_config.py HeadsConfig
[joint]                    # train/joint/config.py JointConfig, only of `medusa train joint`
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from medusakit.errors import ConfigError
from medusakit.train.distill import DistillConfig
from medusakit.train.endpoint_answers import EndpointConfig
from medusakit.train.heads_config import HeadsConfig
from medusakit.train.joint.config import JointConfig
from medusakit.train.seeds import SeedConfig

DEFAULT_TOKENS = 150_000


class Recipe(BaseModel):
    """Everything that shapes an artifact. File names are relative to the recipe's folder.

    weights     format in which the model answers; f32 gives the hidden states of the model itself
    endpoint    a server that answers in the model's stead (stage distill); states are still captured here
    capture     files of answers that are there already (train/capture.py)
    tree_nodes  drafted nodes of the calibrated tree; each machine takes the prefix that pays there
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: str = "smollm2"
    weights: str = "f32"
    capture: tuple[str, ...] = ()
    seeds: SeedConfig = Field(default_factory=SeedConfig)
    distill: DistillConfig = Field(default_factory=lambda: DistillConfig(max_tokens=DEFAULT_TOKENS))
    endpoint: EndpointConfig | None = None
    heads: HeadsConfig = Field(default_factory=lambda: HeadsConfig.model_validate({}))
    joint: JointConfig = Field(default_factory=lambda: JointConfig.model_validate({}))
    tree_nodes: int = Field(default=63, ge=1, le=255)

    def located(self, folder: Path) -> Recipe:
        """The same with file names resolved against `folder`."""

        def here(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(str(folder / name) for name in names)

        seeds = self.seeds.model_copy(update={"files": here(self.seeds.files), "answered": here(self.seeds.answered)})
        return self.model_copy(update={"seeds": seeds, "capture": here(self.capture)})


def read_recipe(path: Path) -> Recipe:
    """Raises ConfigError naming the key: unknown ones with the nearest known, values out of range, files not there."""
    try:
        recipe = Recipe.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).located(path.parent)
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(
            f"the recipe {path} cannot be read: {cause}",
            hint="correct the recipe, or leave out --recipe for the defaults",
        ) from cause
    except (tomllib.TOMLDecodeError, RecursionError) as cause:  # the latter: nested deeper than Python's stack
        raise ConfigError(
            f"the recipe {path} is not TOML: {cause}", hint="correct the recipe, or leave out --recipe for the defaults"
        ) from cause
    except ValidationError as cause:
        raise ConfigError(
            f"the recipe {path}: {_problem(cause.errors()[0])}",
            hint="correct the recipe, or leave out --recipe for the defaults",
        ) from cause
    for name in (*recipe.seeds.files, *recipe.seeds.answered, *recipe.capture):
        if not Path(name).is_file():
            raise ConfigError(
                f"the recipe {path} names {name}, which is not there",
                hint="correct the recipe, or leave out --recipe for the defaults",
            )
    return recipe


def _problem(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] != "extra_forbidden":
        return f"{where}: {error['msg'].lower()} (found {str(error.get('input'))[:60]})"
    table: Any = Recipe
    for part in error["loc"][:-1]:
        table = table.model_fields[str(part)].annotation
        table = next((kind for kind in get_args(table) if kind is not NoneType), table)
    nearest = difflib.get_close_matches(str(error["loc"][-1]), list(table.model_fields), n=1)
    return f"unknown key {where}" + (f", did you mean {nearest[0]}?" if nearest else "")
