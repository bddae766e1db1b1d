"""Finding the code in a reply."""

import pytest

from steproute.verify import extract_code

F = "def f(x):\n    return x"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (f"```python\n{F}\n```", F),
        (f"Here it is:\n\n```py\n{F}\n```\nIt returns x.", F),
        (f"```\n{F}\n```", F),
        (f"~~~python3\n{F}\n~~~", F),
        (f"```python\n{F}", F),  # the stop sequence took the closing fence
        (f"```python\n{F}\n\n\n```", F),
        (f"```bash\npip install x\n```\n```python\n{F}\n```", F),
        (f"```json\n{{}}\n```\n{F}", ""),
        (f"```python\nprint(1)\n```\n```python\n{F}\n```", F),
        (f"```python\nprint(1)\n```\n```python\nasync {F}\n```", f"async {F}"),
        ("```python\nprint(1)\n```\n```python\nprint(2)\n```", "print(1)"),
        ("```python\n```", ""),
        (F, F),
        (f"\n\n{F}\n", F),
        ("x = 1", "x = 1"),
        ("", ""),
        ("42", ""),
        ("Sorry, I cannot do that.", ""),
        ("Sure!", ""),
        ("hello", ""),
        (f"Here is the code:\n{F}", ""),
        ("(" * 10_000, ""),
        ("x = '\0'", ""),
    ],
)
def test_extract(reply, code):
    assert extract_code(reply, "f") == code


def test_without_a_name_the_first_block_counts():
    assert extract_code(f"```python\nprint(1)\n```\n```python\n{F}\n```") == "print(1)"
