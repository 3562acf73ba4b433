"""The benchmarks behind `kibitz bench`: rates within one run, beside what one would use instead."""
