"""Hugging Face folders, written here as they are published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, processors
from tokenizers import Tokenizer as Backend

from medusakit.errors import TokenizerError
from medusakit.models.resolve import ResolvedModel
from medusakit.text.gguf import vocabulary_from_gguf
from medusakit.text.tokenizer import Tokenizer, load_tokenizer
from tiny import write_gguf
from vocabularies import TEXTS, byte_backend, byte_metadata, byte_tokenizer, random_texts, spm_metadata, spm_tokenizer

CORPUS = TEXTS + random_texts(100)


def save(folder: Path, backend: Backend, **files: Any) -> ResolvedModel:
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return ResolvedModel("m", folder, "hf")


def spm_backend() -> Backend:
    """As LLaMA's tokenizer.json was published."""
    texts = spm_metadata()["tokenizer.ggml.tokens"]
    ours = spm_tokenizer()
    vocab = {text: token_id for token_id, text in enumerate(texts)}
    merges = json.loads(ours._backend.to_str())["model"]["merges"]
    model = models.BPE(vocab, [tuple(pair) for pair in merges], byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    backend = Backend(model)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in texts[:3]])
    backend.add_tokens([AddedToken("\n\n", special=False, normalized=False)])
    return backend


def test_byte_level_folder_equals_the_gguf(tmp_path: Path) -> None:
    folder = load_tokenizer(save(tmp_path, byte_backend(), tokenizer_config={"eos_token": "<|im_end|>"}))
    gguf = byte_tokenizer()
    assert [folder.encode(text) for text in CORPUS] == [gguf.encode(text) for text in CORPUS]
    assert [folder.token_bytes(i) for i in range(261)] == [gguf.token_bytes(i) for i in range(261)]
    assert (folder.eos_ids, folder.special_ids, folder.hash) == (gguf.eos_ids, gguf.special_ids, gguf.hash)
    assert folder.encode("<|im_end|>") == gguf.encode("<|im_end|>") != [259]
    assert folder.encode("<|im_end|><think>", parse_special=True) == [259, 260]


def test_sentencepiece_folder_equals_the_gguf(tmp_path: Path) -> None:
    folder = load_tokenizer(save(tmp_path, spm_backend(), tokenizer_config={"bos_token": {"content": "<s>"}}))
    gguf = spm_tokenizer()
    # this published form puts a space after user-defined tokens too, SentencePiece does not
    corpus = [text for text in CORPUS if "\n\n" not in text]
    assert [folder.encode(text) for text in corpus] == [gguf.encode(text) for text in corpus]
    assert [folder.decode(folder.encode(text)) for text in corpus] == corpus
    assert folder.encode("an", add_special=True) == [1, *folder.encode("an")]
    assert (folder.space_prefix, folder.bos_id, folder.hash) == (True, 1, gguf.hash)


def test_add_bos_token_overrules_the_post_processor(tmp_path: Path) -> None:
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": False, "add_eos_token": True}
    tokenizer = load_tokenizer(save(tmp_path, spm_backend(), tokenizer_config=config))
    assert tokenizer.encode("an", add_special=True) == [*tokenizer.encode("an"), 2]


def test_every_source_of_end_ids(tmp_path: Path) -> None:
    model = save(
        tmp_path,
        byte_backend(),
        tokenizer_config={"eos_token": "<|im_start|>"},
        generation_config={"eos_token_id": [7, 8]},
        config={"eos_token_id": 9},
    )
    assert load_tokenizer(model).eos_ids == {7, 8, 9, 258, 259}  # 259, <|im_end|>, is a known end of turn


def test_markers_that_swallow_white_space(tmp_path: Path) -> None:
    backend = byte_backend()
    backend.add_special_tokens([AddedToken("<|user|>", special=True, rstrip=True, lstrip=True)])
    tokenizer = load_tokenizer(save(tmp_path, backend))
    assert tokenizer.encode("the <|user|> \nthe", parse_special=True) == [257, 261, 257]


def test_template_from_file_list_and_string(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    several = load_tokenizer(save(tmp_path, byte_backend(), tokenizer_config={"chat_template": named}))
    assert (several.chat_template, several.tool_template) == ("d", "t")
    model = save(tmp_path, byte_backend(), tokenizer_config={"chat_template": "s"})
    assert load_tokenizer(model).chat_template == load_tokenizer(model).tool_template == "s"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert load_tokenizer(model).chat_template == "file"
    assert load_tokenizer(save(tmp_path / "none", byte_backend())).chat_template is None


def test_truncation_and_padding_are_off(tmp_path: Path) -> None:
    backend = byte_backend()
    backend.enable_truncation(2)
    backend.enable_padding(length=8)
    assert load_tokenizer(save(tmp_path, backend)).encode("xyz") == [*b"xyz"]


def test_no_tokenizer_json(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"has no tokenizer.json"):
        load_tokenizer(ResolvedModel("m", tmp_path, "hf"))


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_damaged_json(tmp_path: Path, file: str) -> None:
    model = save(tmp_path, byte_backend())
    (tmp_path / file).write_text('{"version": "1.0", ')
    with pytest.raises(TokenizerError, match=file.replace(".", r"\.")):
        load_tokenizer(model)


def test_a_decoder_that_is_not_known(tmp_path: Path) -> None:
    backend = Backend(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    with pytest.raises(TokenizerError, match=r"decoder in tokenizer.json is WordPiece"):
        load_tokenizer(save(tmp_path, backend))


def test_a_gguf_file_is_read_through_the_resolved_model(tmp_path: Path) -> None:
    """The tiny model files carry no vocabulary, and the error says so."""
    file = write_gguf(tmp_path / "m.gguf", "llama")
    with pytest.raises(TokenizerError, match="has no vocabulary"):
        load_tokenizer(ResolvedModel("m", file, "gguf"))
    assert Tokenizer(vocabulary_from_gguf(byte_metadata())).vocab_size == 261
