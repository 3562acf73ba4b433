"""A language model at play: many games side by side, legal answers only. Learning from them is one room up."""
