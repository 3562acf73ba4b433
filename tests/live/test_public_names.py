"""The names that `kibitz.live` promises."""

from __future__ import annotations

import pytest

import kibitz.live


@pytest.mark.parametrize("name", kibitz.live.__all__)
def test_every_public_name_can_be_imported_from_the_package(name: str) -> None:
    assert getattr(kibitz.live, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = kibitz.live.nothing
