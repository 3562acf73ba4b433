"""The fake language models that the tests of advice use."""

from tests.advice.conftest import embedded, fake, presets, prompts

__all__ = ["embedded", "fake", "presets", "prompts"]
