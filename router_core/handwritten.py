"""YAML that people write by hand: a key given twice is refused, where YAML's own reader would keep the last one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:  # as written: keys that `<<` brings are not among them yet
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            name = (key.tag, key.value)
            if name in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(name)
        return node


def read_yaml(path: Path) -> Any:
    """The content of a YAML file.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is not UTF-8 text.
        yaml.YAMLError: it is malformed, or a key is given twice.
    """
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
