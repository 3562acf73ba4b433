"""Judges of style: episodes with known labels, a supervised classifier, and how often a judge is right."""
