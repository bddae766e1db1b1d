"""CPU time of `import steproute` above numpy and pydantic, in fresh interpreters.

`python benchmarks/speed/import_time.py`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

CODE = """
import time
import numpy
from pydantic import BaseModel, Field, field_validator
class Warm(BaseModel):
    x: int = 0
start = time.process_time()
import steproute
print(time.process_time() - start)
"""


def main(runs: int = 9) -> None:
    """Measure and print the median."""
    seconds = [
        float(subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout)
        for _ in range(runs)
    ]
    sys.stdout.write(
        f"import steproute: {statistics.median(seconds):.3f} s CPU above numpy and pydantic "
        f"(median of {runs}; {min(seconds):.3f} to {max(seconds):.3f})\n"
    )


if __name__ == "__main__":
    main()
