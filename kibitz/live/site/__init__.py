"""What pages show beside the episode itself: outlines of episodes, share cards, records of players."""
