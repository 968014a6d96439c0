"""Lightning data modules of nodes, links and walks."""
