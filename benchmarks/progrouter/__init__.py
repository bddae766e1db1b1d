"""ProgRouter's main table and figures 3 to 5 (arXiv 2608.25992, section 3) on the simulated workload."""
