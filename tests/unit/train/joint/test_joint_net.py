"""The adapted model: off it is the original, merged it is itself; only what should be trained is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from joint_toys import HEADS, JOINT, answers, loaded, model_folder
from medusakit.errors import ModelError, UnsupportedModelError, UsageError
from medusakit.models.resolve import ResolvedModel, open_weights
from medusakit.text.tokenizer import load_tokenizer
from medusakit.train.heads import untrained_heads
from medusakit.train.joint.merge import save_merged, save_tokenizer
from medusakit.train.joint.net import JointNet, hidden_states, teacher_states, with_adapter
from medusakit.train.joint.passages import make_step, passages_of
from medusakit.train.joint.stage import four_bit
from tiny import close_writer, config, gguf_tensors, gguf_writer, weights
from vocabularies import byte_metadata

IDS = torch.tensor([[5, 9, 200, 31, 7, 7, 80, 3]])


def disturbed(model: Any) -> Any:
    """An adapter that does something."""
    adapted = with_adapter(model, JOINT)
    torch.manual_seed(1)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    return adapted.eval()


@pytest.mark.parametrize("variant", ["llama", "qwen2", "qwen3"])
def test_merging_changes_nothing_and_off_is_the_original(tmp_path: Path, variant: str) -> None:
    resolved = model_folder(tmp_path / "m", variant=variant)
    with torch.no_grad():
        original = loaded(resolved)(input_ids=IDS).logits
        adapted = disturbed(loaded(resolved))
        on = adapted(input_ids=IDS).logits
        with adapted.disable_adapter():
            torch.testing.assert_close(adapted(input_ids=IDS).logits, original, rtol=0, atol=0)
        save_merged(adapted, resolved, tmp_path / "out")
        written = ResolvedModel("out", tmp_path / "out", "hf")
        torch.testing.assert_close(loaded(written)(input_ids=IDS).logits, on, rtol=1e-4, atol=1e-4)
    assert float((on - original).abs().max()) > 0.05
    assert open_weights(written).spec.tied_embeddings == open_weights(resolved).spec.tied_embeddings
    assert load_tokenizer(written).hash == load_tokenizer(resolved).hash


def gguf_file(path: Path) -> ResolvedModel:
    """The tiny model and the byte vocabulary in one file."""
    cfg, told = config("llama", vocab_size=261), byte_metadata()
    writer = gguf_writer(path, cfg)
    writer.add_tokenizer_model(told["tokenizer.ggml.model"])
    writer.add_tokenizer_pre(told["tokenizer.ggml.pre"])
    writer.add_token_list(told["tokenizer.ggml.tokens"])
    writer.add_token_types(told["tokenizer.ggml.token_type"])
    writer.add_token_merges(told["tokenizer.ggml.merges"])
    writer.add_bos_token_id(told["tokenizer.ggml.bos_token_id"])
    writer.add_eos_token_id(told["tokenizer.ggml.eos_token_id"])
    for name, values in gguf_tensors(cfg, weights(cfg)).items():
        writer.add_tensor(name, values)
    close_writer(writer)
    return ResolvedModel("m", path, "gguf")


def test_a_gguf_becomes_a_folder_of_the_same_ids(tmp_path: Path) -> None:
    resolved = gguf_file(tmp_path / "m.gguf")
    adapted = disturbed(loaded(resolved))
    with torch.no_grad():
        on = adapted(input_ids=IDS).logits
        save_merged(adapted, resolved, tmp_path / "out")
        written = ResolvedModel("out", tmp_path / "out", "hf")
        torch.testing.assert_close(loaded(written)(input_ids=IDS).logits, on, rtol=1e-4, atol=1e-4)
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())
    own, other = load_tokenizer(resolved), load_tokenizer(written)
    text = "the 12345 theth don't <|im_end|> naïve"
    assert own.encode(text) == other.encode(text)
    assert own.encode(text, parse_special=True) == other.encode(text, parse_special=True)


def test_a_folder_without_its_tokenizer_is_refused(tmp_path: Path) -> None:
    resolved = model_folder(tmp_path / "m")
    (tmp_path / "out").mkdir()
    shutil.copy(tmp_path / "m" / "config.json", tmp_path / "out")
    save_tokenizer(resolved, tmp_path / "out")
    (tmp_path / "m" / "tokenizer_config.json").write_text('{"chat_template": "another"}')
    (tmp_path / "m" / "chat_template.jinja").unlink(missing_ok=True)
    (tmp_path / "out" / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(ModelError, match="other ids"):
        save_tokenizer(resolved, tmp_path / "out")


def test_the_teacher_is_the_original_and_the_stored_states_are_its(tmp_path: Path) -> None:
    resolved = model_folder(tmp_path / "m")
    dataset = answers(tmp_path / "set", loaded(resolved))
    step = make_step(passages_of(dataset)[:3])
    adapted = disturbed(loaded(resolved))
    own = teacher_states(adapted, step)
    torch.testing.assert_close(own, step.teacher(), rtol=2e-3, atol=2e-3)
    with torch.no_grad():
        on = hidden_states(adapted, step.ids).flatten(0, 1)[step.rows]
    assert float((on - own).abs().max()) > 0.02


def test_stored_and_computed_teacher_give_one_loss_and_only_adapter_and_heads_learn(tmp_path: Path) -> None:
    resolved = model_folder(tmp_path / "m")
    dataset = answers(tmp_path / "set", loaded(resolved))
    step = make_step(passages_of(dataset)[:4])
    losses, trained = [], set[str]()
    for teacher in ("stored", "computed"):
        begun = untrained_heads(dataset, open_weights(resolved), HEADS)
        config = JOINT.model_copy(update={"teacher": teacher})
        net = JointNet(loaded(resolved), begun.net.requires_grad_(True), begun.backdrop, config, HEADS)
        for name, parameter in net.named_parameters():
            if "lora_B" in name:
                torch.manual_seed(3)
                torch.nn.init.normal_(parameter, std=0.02)
        loss, report = net(step, 0.1)
        loss.backward()
        losses.append(float(loss.detach()))
        trained = {name for name, value in net.named_parameters() if value.grad is not None}
        assert report.backbone > 0
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert all("lora_" in name or name.startswith("heads.") for name in trained)
    layers = {part for name in trained for part in name.split(".") if part.endswith("_proj")}
    assert layers == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert not any("lm_head" in name for name in trained)


def test_scores_that_are_changed_after_the_head_are_refused(tmp_path: Path) -> None:
    model = loaded(model_folder(tmp_path / "m", variant="gemma3", final_logit_softcapping=2.0))
    dataset = answers(tmp_path / "set", model, count=4)
    begun = untrained_heads(dataset, open_weights(ResolvedModel("m", tmp_path / "m", "hf")), HEADS)
    with pytest.raises(UnsupportedModelError, match="changes its scores"):
        JointNet(model, begun.net, begun.backdrop, JOINT, HEADS)


def test_four_bits_need_cuda() -> None:
    with pytest.raises(UsageError, match="bitsandbytes|CUDA"):
        four_bit()
