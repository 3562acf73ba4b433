"""A tiny random model of transformers with a tokenizer of its own, for tests of the training loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tiny_model(folder: Path, seed: int = 0) -> Path:
    """Llama with two layers of 32, and a tokenizer of single characters."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    marks = ["<|end|>", "<|user|>", "<|assistant|>", "<|unknown|>"]
    known = {token: i for i, token in enumerate([*marks, *(chr(i) for i in range(32, 127)), "\n"])}
    raw = Tokenizer(models.WordLevel(known, unk_token="<|unknown|>"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    raw.decoder = decoders.Fuse()  # without one, answers are decoded with spaces between their characters
    raw.add_special_tokens(marks)
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|end|>", unk_token="<|unknown|>")
    tokenizer.chat_template = CHAT
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(known),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=0,
        bos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
