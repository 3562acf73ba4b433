"""The fake presets of the hint tests."""

from tests.advice.conftest import embedded, fake, presets

__all__ = ["embedded", "fake", "presets"]
