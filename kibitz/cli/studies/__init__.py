"""Commands that answer questions with many games: evaluations, tournaments, studies. `kibitz.studies` does the work."""
