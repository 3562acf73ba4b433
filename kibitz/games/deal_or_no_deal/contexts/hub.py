"""Downloads the data set from the Hugging Face hub, once, into the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

from kibitz.core.errors import BadInput
from kibitz.core.system.paths import cache_folder, write_whole
from kibitz.games.deal_or_no_deal.contexts.formats import Dataset, description, first_line

HUB = "https://huggingface.co"


def download(dataset: Dataset) -> Path:
    """The hub's parquet file of the training split.

    HF_ENDPOINT replaces the public hub's address. The file is written atomically.
    """
    needs, name = description(dataset), f"{dataset}/train/0000.parquet"
    cached = cache_folder() / "deal_or_no_dialog" / name
    if cached.is_file():
        return cached
    host = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
    url = f"{host}/datasets/deal_or_no_dialog/resolve/refs%2Fconvert%2Fparquet/{name}"
    instead = f"give dataset_path instead, a file or folder with {needs}."
    try:
        import httpx
    except ImportError:
        raise BadInput(f"Downloading {url} needs httpx: pip install 'kibitz[data]', or {instead}") from None
    try:
        # The hub redirects to the repository's current name, then to its file store.
        data = httpx.get(url, follow_redirects=True, timeout=30).raise_for_status().content
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise BadInput(f"Could not download {url} ({first_line(error)}); {instead}") from error
    # HTTP reports success for a login page and for a truncated reply without a content length.
    if len(data) <= 8 or not data[:4] == data[-4:] == b"PAR1":
        raise BadInput(f"The response from {url} is not a complete parquet file; {instead}")
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_whole(cached, data)
    except OSError as error:
        raise BadInput(f"Could not write {cached} ({first_line(error)}); {instead}") from error
    return cached
