"""The benchmarks behind `kibitz bench`, each next to its alternatives within one run. Nothing else imports them."""
