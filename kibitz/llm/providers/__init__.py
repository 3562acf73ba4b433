"""Where models run: remote services, the embedded model, Hugging Face. One optional dependency per module."""
