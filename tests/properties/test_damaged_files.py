"""A damaged weight file gives a ModelError or opens: never another exception, never a value from outside the file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from medusakit.errors import ModelError
from medusakit.models.gguf import GgufSource
from medusakit.models.hf import HfSource
from medusakit.models.spec import WeightSource
from tiny import write_gguf, write_hf

_SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("gguf")
    return write_gguf(folder / "m.gguf", "llama-llama3", format="q4_1", num_hidden_layers=1).read_bytes()


@pytest.fixture(scope="module")
def safetensors_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = write_hf(tmp_path_factory.mktemp("hf") / "m", "llama", num_hidden_layers=1)
    return (folder / "model.safetensors").read_bytes()


def read_all(source: WeightSource) -> None:
    for name in source.names():
        source.tensor(name).f32()


@_SETTINGS
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_gguf_is_refused_with_a_reason(share: float, gguf_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes[: int(len(gguf_bytes) * share)])
    with pytest.raises(ModelError, match=r"empty|not a GGUF|damaged|truncated"):
        GgufSource(path)


@_SETTINGS
@given(cut=st.integers(1, 3000))
def test_a_gguf_cut_in_its_head_is_refused(cut: int, gguf_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes[:cut])
    with pytest.raises(ModelError, match=r"not a GGUF|damaged|truncated"):
        GgufSource(path)


@_SETTINGS
@given(at=st.integers(0, 2500), patch=st.binary(min_size=1, max_size=8))
def test_a_gguf_with_changed_bytes_opens_or_is_refused(
    at: int, patch: bytes, gguf_bytes: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes[:at] + patch + gguf_bytes[at + len(patch) :])
    try:
        read_all(GgufSource(path))
    except ModelError as error:
        assert "m.gguf" in str(error) or "NaN or infinite" in str(error)


@_SETTINGS
@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_safetensors_are_refused(
    share: float, safetensors_bytes: bytes, tmp_path: Path, hf_folder: Path
) -> None:
    (hf_folder / "model.safetensors").write_bytes(safetensors_bytes[: int(len(safetensors_bytes) * share)])
    with pytest.raises(ModelError, match=r"empty|damaged|truncated"):
        HfSource(hf_folder)


@_SETTINGS
@given(at=st.integers(0, 1500), patch=st.binary(min_size=1, max_size=8))
def test_safetensors_with_changed_bytes_open_or_are_refused(
    at: int, patch: bytes, safetensors_bytes: bytes, hf_folder: Path
) -> None:
    changed = safetensors_bytes[:at] + patch + safetensors_bytes[at + len(patch) :]
    (hf_folder / "model.safetensors").write_bytes(changed)
    try:
        read_all(HfSource(hf_folder))
    except ModelError as error:
        assert "tensor" in str(error)


@pytest.fixture(scope="module")
def hf_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hf(tmp_path_factory.mktemp("damaged") / "m", "llama", num_hidden_layers=1)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"PK\x03\x04" + bytes(60), "begins with b'PK"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(60), "version 1; versions 2 and 3"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(60), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "the name of key 0"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "the name of tensor 0"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62), "needs 4611686018427387904 bytes"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 77), "unknown type 77"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 8, 1 << 60), "ends inside the value of 'k'"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 1), "array of the unknown type 9"),
        (b"GGUF" + struct.pack("<IQQQ1sIQ", 3, 1, 0, 1, b"t", 9, 1), "9 dimensions"),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 0, 0, 0) + bytes(64), r"the shape \[0\]"),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 33, 8, 0) + bytes(64), "blocks of 32"),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 4, 99, 0) + bytes(64), r"number 99 \(unknown\)"),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 4, 0, 1 << 50) + bytes(64), "truncated: tensor 't'"),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 4, 0, 2) + bytes(64), "unaligned"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"\xff", 4), "not UTF-8"),
    ],
)
def test_the_reason_says_what_is_wrong(head: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(head)
    with pytest.raises(ModelError, match=message):
        GgufSource(path)
