"""The negotiation's own Gymnasium, PettingZoo and tool-calling environments. All of them run `rules.py`."""
