"""What pages show beside the episode itself: outlines, share cards, players' records. The pages are in `static`."""
