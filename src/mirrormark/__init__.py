"""mirrormark: an infant, a mirror and a mark."""

__version__ = "0.1.0"
