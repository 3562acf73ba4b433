"""Training: networks, PPO, REINFORCE, supervised experts, runs and checkpoints."""
