"""The negotiation for other trainers: Gymnasium, PettingZoo, tool calls. All of them run `rules.py`."""
