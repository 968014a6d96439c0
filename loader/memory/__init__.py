"""What lies in GPU memory: the graph, its lists and feature rows, within a budget."""
