"""Environments for agents that bring their own loop, generic over games. Each game adds its own in its `envs`."""
