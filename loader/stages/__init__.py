"""The stages of a loader: sample, gather, move."""
