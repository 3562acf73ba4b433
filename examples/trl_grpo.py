"""TRL's GRPOTrainer plays Deal or No Deal: the model calls the game's tools, and the episode's return is the reward.

    pip install 'kibitz[teach,embedded]' && kibitz llm install
    python examples/trl_grpo.py --steps 200
    python examples/trl_grpo.py --server http://127.0.0.1:8000    # the same over `kibitz serve`

The small embedded model rarely calls a tool at first; name a larger one with --model. `kibitz teach grpo` asks for one
legal answer per turn instead, which suits small models far better.
"""

from __future__ import annotations

import argparse
from importlib.resources import files
from typing import Any

from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from kibitz.teach.environments import environment_factory, openenv_factory
from kibitz.teach.libraries import load_model, load_tokenizer

TASK = "You negotiate over books, hats and balls. Use the tools to get as many points as you can.\n"


def main(words: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description="Train a model on Deal or No Deal with TRL.")
    parser.add_argument("--game", default="deal_or_no_deal")
    parser.add_argument("--model", default="embedded", help="embedded, a GGUF file or a folder of transformers")
    parser.add_argument("--server", help="address of an OpenEnv server; default: play in this process")
    parser.add_argument("--out", default="runs/trl_grpo")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--group", type=int, default=8, help="episodes per deal")
    parser.add_argument("--tokens", type=int, default=512, help="of all answers of an episode together")
    given = parser.parse_args(words)

    import torch

    tokenizer = load_tokenizer(given.model)
    if given.model == "embedded":  # SmolLM2 writes ChatML, but its own template has no tools
        tokenizer.chat_template = (files("trl") / "chat_templates" / "qwen2_5.jinja").read_text()
    deals = Dataset.from_list([{"prompt": [{"role": "user", "content": TASK}], "seed": seed} for seed in range(1000)])
    server = given.server
    trainer = GRPOTrainer(
        model=load_model(given.model, torch.float32),
        args=GRPOConfig(
            given.out,
            max_steps=given.steps,
            per_device_train_batch_size=given.group,
            num_generations=given.group,
            max_completion_length=given.tokens,
            learning_rate=1e-5,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=not torch.cuda.is_available(),
            bf16=torch.cuda.is_available(),
        ),
        train_dataset=deals,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"),
        environment_factory=openenv_factory(server, given.game) if server else environment_factory(given.game),
    )
    trainer.train()
    return trainer


if __name__ == "__main__":
    main()
