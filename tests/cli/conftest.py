"""The same fake presets as the hints have."""

from tests.hints.conftest import embedded, fake, presets

__all__ = ["embedded", "fake", "presets"]
