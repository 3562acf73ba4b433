"""Judges of style: labelled episodes, a supervised classifier, accuracy. Rewards from a judge are in `train`."""
