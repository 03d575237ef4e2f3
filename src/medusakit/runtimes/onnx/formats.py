"""Weight formats of the CPU runtime, by name."""

WEIGHTS = ("f32", "int8", "int4")
