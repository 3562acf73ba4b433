"""transformers through the real loading code, with a tiny model made here: random weights, real files."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.llm.answers.answer import Answer, Text
from kibitz.llm.client.client import Client, connect
from kibitz.llm.client.types import Question, Reply
from kibitz.llm.presets import Preset, why_not

pytestmark = pytest.mark.conformance

CHAT = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
CORPUS = [
    "You negotiate with a partner over a pool of books, hats and balls.",
    '{"act_type":0,"oA":[1,0,2],"confidence":0.5}',
    '{"act_type":4,"oA":[3,4,0],"confidence":1.0}, "12", "345", "],", ":[", "67", "89"',
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder as the hub would have it: config, safetensors, tokenizer files."""
    for name in ("torch", "transformers"):
        if os.environ.get("CI") == "true":
            __import__(name)
        pytest.importorskip(name)
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", chat_template=CHAT)
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    config = LlamaConfig(vocab_size=448, num_attention_heads=4, eos_token_id=fast.eos_token_id, **shape)
    LlamaForCausalLM(config).save_pretrained(folder)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in folder.iterdir()}
    return folder


def preset(folder: Path, temperature: float = 0.0, **limits: Any) -> Preset:
    return Preset.read(
        {
            "provider": "local_hf",
            "model": str(folder),
            "sampling": {"temperature": temperature},
            "limits": {"deadline": 600.0, "timeout": 600.0, "attempts": 1, **limits},
        }
    )


def states(count: int) -> list[Question]:
    """Every state with its own open values, as in the game."""
    questions = []
    for number in range(count):
        caps = [1 + number % 4, 1 + number // 4 % 4, 1 + number // 16 % 4]
        acts = [0, 1, 2, 3, 4] if number % 2 else [0, 1, 3, 4]
        fields = {"act_type": acts, "oA": [list(range(cap + 1)) for cap in caps]}
        answer = Answer.of({**fields, "confidence": [tenth / 10 for tenth in range(11)]})
        content = f"{CORPUS[0]} State {number}." + " More words." * (number % 7)
        questions.append(Question([{"role": "user", "content": content}], answer))
    return questions


def asked(preset: Preset, questions: list[Question]) -> tuple[list[Reply], Client]:
    async def talk() -> tuple[list[Reply], Client]:
        client = connect(preset)
        try:
            return await client.ask_many(questions), client
        finally:
            await client.close()

    return asyncio.run(talk())


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_every_answer_of_a_random_model_is_legal(folder: Path, temperature: float) -> None:
    questions = states(64)
    replies, client = asked(preset(folder, temperature), questions)
    assert client.ledger.as_dict()["failed"] == 0, [str(reply.failure) for reply in replies if reply.failure]
    for question, reply in zip(questions, replies, strict=True):
        assert question.answer.parse(reply.text) == reply.fields
        assert reply.usage.prompt_tokens > 10
        assert 1 <= reply.usage.completion_tokens <= 4  # act and three numbers: only where there is a choice
    confidences = {reply.fields["confidence"] for reply in replies if reply.fields}
    assert len(confidences) > 5


def test_a_question_gets_the_same_answer_alone_and_in_a_batch(folder: Path) -> None:
    questions = states(8)
    together, _ = asked(preset(folder), questions)
    for question, reply in list(zip(questions, together, strict=True))[:3]:
        (alone,), _ = asked(preset(folder), [question])
        assert alone.fields is not None
        assert reply.fields is not None
        assert (alone.fields["act_type"], alone.fields["oA"]) == (reply.fields["act_type"], reply.fields["oA"])
        assert alone.fields["confidence"] == pytest.approx(reply.fields["confidence"], abs=0.01)


def test_answers_in_words_are_legal_too(folder: Path) -> None:
    answer = Answer.of({"intent": ["attack", "rotate", "defend"], "reason": Text(20)})
    question = Question([{"role": "user", "content": "Who bowls?"}], answer)
    (reply,), _ = asked(preset(folder, temperature=1.0), [question])
    assert reply.ok, reply.failure
    assert json.loads(reply.text) == reply.fields


def test_a_deadline_ends_a_generation(folder: Path) -> None:
    latencies = []
    for _ in range(5):  # the best of five: other processes use this machine
        (reply,), _ = asked(preset(folder, deadline=0.005, timeout=0.005), states(1))
        assert reply.failure is not None
        assert (reply.failure.kind, reply.failure.detail) == ("transport", "deadline")
        latencies.append(reply.latency)
        if reply.latency < 0.5:
            break
    assert min(latencies) < 0.5


@pytest.mark.usefixtures("folder")
def test_a_folder_without_a_model_is_refused_before_loading(tmp_path: Path) -> None:
    assert "no model in the folder" in why_not(preset(tmp_path))
    with pytest.raises(BadInput, match="cannot be used"):
        connect(preset(tmp_path))
