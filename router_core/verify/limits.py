"""What one candidate may use."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SandboxLimits(BaseModel):
    """What one candidate may use."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu_seconds: int = Field(default=3, ge=1)
    """CPU time of one process, loading the code and all calls together."""
    wall_seconds: float = Field(default=20.0, gt=0)
    """Longest wait for one answer."""
    session_seconds: float = Field(default=60.0, gt=0)
    """Longest life of one session, and of one test."""
    test_cpu_seconds: int = Field(default=10, ge=1)
    """CPU time of the benchmark's own test code."""
    memory_bytes: int = Field(default=512 << 20, ge=64 << 20)
    """Address space of one process."""
    processes: int = Field(default=8, ge=1)
    """Processes and threads at one time, the interpreter itself included."""
    file_bytes: int = Field(default=1 << 20, ge=0)
    """Largest file the candidate may write."""
    folder_bytes: int = Field(default=16 << 20, ge=1 << 20)
    """Everything it may write together (bubblewrap only)."""
    answer_bytes: int = Field(default=16 << 20, ge=1 << 10)
    """Longest result taken from one call, as text."""

    def of_process(self, cpu_seconds: int) -> dict[str, int]:
        """The limits the kernel enforces, by the names `resource` uses."""
        return {
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": cpu_seconds,
            "RLIMIT_AS": self.memory_bytes,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_NOFILE": 256,
            "RLIMIT_NPROC": self.processes,
        }
