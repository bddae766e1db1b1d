"""Tables of outcomes, task × model, in the formats they are published in, behind `steproute replay TABLE`."""
