"""Episodes the server plays: requests, preparation, the runner, the person's seat, branches."""
