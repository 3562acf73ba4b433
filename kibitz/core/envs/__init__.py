"""Gymnasium, PettingZoo and tool-calling environments for any game.

A game's special environments are in its own `envs`; episodes between kibitz's players are in `core.play`.
"""
