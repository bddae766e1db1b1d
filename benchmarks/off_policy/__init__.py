"""Off-policy estimates on synthetic logs whose truth is known."""
