"""A report as HTML, Markdown, JSON and CSV, with its plots and how it was made. It computes no finding itself."""
