"""How well progress after some turns foretells how a run ends, on runs whose end is known."""
