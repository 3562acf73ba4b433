"""Examples for a language model: positions with an expert's answers, as rows of text. Training is one room up."""
