"""Training: networks, PPO, REINFORCE, supervised experts, runs and checkpoints. Measuring players is in `evaluate`."""
