"""The coordinator's summary of a state, in words."""

from __future__ import annotations

import numpy as np

from steproute.benchmarks.simulator.world import Job, World

_KIND = {
    "algorithm": (
        "merge overlapping intervals after sorting",
        "shortest path through a weighted graph",
        "dynamic programming over prefixes",
        "count inversions with a tree",
        "greedy scheduling of jobs",
    ),
    "parsing": (
        "read dates out of free text with a regular expression",
        "tokenize nested brackets and quotes",
        "split a log line into its fields",
        "walk a malformed XML document",
        "decode escaped CSV cells",
    ),
    "interface": (
        "page through a REST endpoint with retries",
        "open a database session and map rows",
        "call the vendor's client library",
        "watch a directory with the operating system's events",
        "sign a request for the storage service",
    ),
    "numeric": (
        "invert an ill-conditioned matrix",
        "integrate an oscillating function",
        "fit a curve by least squares",
        "round monetary amounts exactly",
        "simulate a random walk and its variance",
    ),
}
_HARD = (
    ("a short routine piece", "plain and well specified", "a textbook case"),
    ("some care is needed", "a few corner cases", "an ordinary piece of work"),
    ("many corner cases interact", "the requirements are subtle", "hard to get right"),
)
_CAUSE = {
    "logic": (
        "the result is wrong for several inputs",
        "an invariant does not hold after the loop",
        "the approach misses a case",
    ),
    "format": (
        "the answer is right but wrapped in prose",
        "only the output layout differs from what was asked",
        "the code block is cut off by a stray fence",
    ),
    "environment": (
        "a module cannot be imported in the sandbox",
        "the connection was refused by the service",
        "the installed version lacks that argument",
    ),
}


def summarise_job(world: World, job: Job, index: int) -> str:
    """What the coordinator writes before the next call. It sees the part and the failure; difficulty only roughly."""
    rng = np.random.default_rng([world.seed, 4, index, job.calls])
    done = sum(part.done for part in job.parts)
    head = f"{done} of {len(job.parts)} parts are done after {job.calls} calls."
    part = job.current
    if part is None:
        return f"{head} All parts pass their tests; put them together and run the whole."
    number = job.parts.index(part)
    # The wording of a part stays the same while the task runs.
    words = np.random.default_rng([world.seed, 5, index, number])
    seen = part.difficulty + float(words.normal(0, 0.4))
    text = f"{head} Part {number + 1}: {words.choice(_KIND[part.kind])}; {words.choice(_HARD[int(seen > -1.1) + int(seen > -0.4)])}."
    if part.cause:
        text += f" The last attempt by {part.failures[-1] if part.failures else 'the team'} failed: {rng.choice(_CAUSE[part.cause])}."
    return text
