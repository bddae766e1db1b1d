"""tau2-bench: customer service with tools, played by an agent whose model is routed at every turn."""
