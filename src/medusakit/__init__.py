"""Medusa for any machine: draft several tokens with light heads, verify a tree in one pass, keep what the model agrees with."""

__version__ = "0.1.0"
