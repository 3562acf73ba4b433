"""Commands about the installation: `docs`, `doctor`, `list`, and the extras. They play and train nothing."""
