"""How well players do: many episodes, packs of scenarios, means with intervals. Training is in `train`."""
