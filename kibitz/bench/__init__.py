"""The benchmarks behind `kibitz bench`, each measured with its alternatives in one run. Only `cli` imports them."""
