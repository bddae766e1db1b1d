"""What a process gives up before it runs code that is not ours. Its source is also run inside the sandbox."""

import os


def confine(limits: dict[str, int], uid: int, strict: bool) -> None:
    """Give up everything the candidate must not have: limits first, then the user id (0 = keep it)."""
    import resource

    try:
        with open("/proc/self/oom_score_adj", "w") as score:  # when memory runs out, the candidate goes first
            score.write("1000")
    except OSError:
        pass
    for name, value in limits.items():
        try:
            # one second between the soft and the hard limit tells a time-out (SIGXCPU) from any other kill
            resource.setrlimit(getattr(resource, name), (value, value + 1 if name == "RLIMIT_CPU" else value))
        except (OSError, ValueError):
            if strict:
                raise
    if uid:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
