"""Atomic writes."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import pytest

from kibitz.core.system.paths import write_whole


def test_a_file_is_replaced_whole_through_its_link_and_keeps_its_mode(tmp_path: Path) -> None:
    file, link = tmp_path / "file.txt", tmp_path / "link.txt"
    file.write_text("old", encoding="utf-8")
    file.chmod(0o640)
    link.symlink_to(file)
    write_whole(link, "new")
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == "new"
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_writer_that_fails_leaves_the_old_content_and_no_other_file(tmp_path: Path) -> None:
    file = tmp_path / "file.bin"
    write_whole(file, b"old", sync=True)

    def broken(stream: IO[bytes]) -> None:
        stream.write(b"half")
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="full"):
        write_whole(file, broken)
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]
    assert file.read_bytes() == b"old"
