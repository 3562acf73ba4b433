"""The same fake presets as the hints have."""

from tests.advice.conftest import embedded, fake, presets, prompts

__all__ = ["embedded", "fake", "presets", "prompts"]
