"""A seeded agent workload: tasks in parts, workers of six sizes, recovery calls; nothing is called, everything is drawn."""
