"""Environments for agents with a loop of their own, for any game: Gymnasium (single and vector), PettingZoo, tool calls.

A game's special environments are in its own `envs`; playing episodes with kibitz's own loop is in `core.play`.
"""
