"""The command line: the only place that prints. Commands load on use: `medusa --help` imports no NumPy and no torch."""
