"""Work in items, done here, in local processes, or on a Ray cluster. What an item computes is its caller's business."""
