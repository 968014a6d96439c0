"""Lightning data modules of vertices, links and walks."""
