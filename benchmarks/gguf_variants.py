"""The same model in other GGUF types: every matrix of a file dequantised and stored again.

python benchmarks/gguf_variants.py model.gguf FOLDER F32 Q8_0
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize

VARIANTS = ("F32", "F16", "Q8_0", "Q4_0", "Q4_1")
# general.file_type as llama.cpp numbers it; for people and tools that show it, the tensors carry their own types
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7}


def variant(source: Path, folder: Path, name: str) -> Path:
    """The file of one variant, made if it is not there. Vectors stay F32, as llama.cpp's own converter leaves them."""
    target = folder / f"{source.stem.split('.')[0]}.{name}.gguf"
    if target.is_file():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    staged = target.with_suffix(".part")
    reader = GGUFReader(source)
    writer = GGUFWriter(staged, str(reader.fields["general.architecture"].contents()))
    _copy_metadata(reader, writer, FILE_TYPES[name])
    kind = GGMLQuantizationType[name]
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if values.ndim == 1 or name == "F32":
            writer.add_tensor(tensor.name, values)
        elif name == "F16":
            writer.add_tensor(tensor.name, values.astype(np.float16))
        else:
            writer.add_tensor(tensor.name, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    staged.replace(target)
    return target


def _copy_metadata(reader: GGUFReader, writer: GGUFWriter, file_type: int) -> None:
    for name, entry in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = entry.types[-1] if entry.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, entry.contents(), entry.types[0], inner)
    writer.add_file_type(file_type)


if __name__ == "__main__":
    for wanted in sys.argv[3:] or VARIANTS:
        print(variant(Path(sys.argv[1]), Path(sys.argv[2]), wanted))
