"""Things steproute calls: backends, meters, embedders, vector memory."""
