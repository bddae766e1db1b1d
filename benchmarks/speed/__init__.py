"""What the router itself costs."""
