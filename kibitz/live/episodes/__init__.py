"""Playing episodes: requests, preparation, the runner, a person's seat, branches, janitors. Routes are in `http`."""
