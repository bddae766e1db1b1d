"""What steproute calls: model backends, energy meters, embedders, vector memory. Each module needs its own extra."""
