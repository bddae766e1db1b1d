"""RouterArena's files: `router_inference/predictions/NAME.json` and `router_inference/config/NAME.json`.

Its data set carries no outcomes a router may see, so ours decides from what it knew before: prices, sizes, and whatever
the `Router` handed in has learnt elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from steproute.errors import ConfigError
from steproute.ledger import Outcome, Task
from steproute.router import Router


def load_prompts(path: Path) -> list[tuple[str, str]]:
    """(global index, prompt) of every entry that has both, as RouterArena's own generator reads them.

    Args:
        path: `router_data.json`, `router_data_10.json` or `router_robustness.json`.

    Raises:
        ConfigError: the file cannot be read, or holds no usable entry.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"data: {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"data: {path} is no JSON ({error})") from None
    if not isinstance(rows, list):
        raise ConfigError(f"data: {path}: seen {type(rows).__name__}; allowed: a list of entries")
    found = [(row.get("global index"), row.get("prompt_formatted") or row.get("prompt")) for row in rows]
    usable = [(str(index), str(prompt)) for index, prompt in found if index and prompt]
    if not usable:
        raise ConfigError(f"data: {path}: no entry has `global index` and `prompt_formatted` or `prompt`")
    return usable


def predictions(
    prompts: Sequence[tuple[str, str]], router: Router, progress: Callable[[int], None] = lambda _: None
) -> list[dict[str, Any]]:
    """One prediction for each prompt: the model's name in the pool, which must be RouterArena's name for it.

    Args:
        prompts: from `load_prompts`.
        router: decides; it is told that each call was made, never how it ended.
        progress: called with the number done.
    """
    made = []
    for number, (index, prompt) in enumerate(prompts, start=1):
        task = Task(id=f"routerarena/{number}", goal=prompt, source="routerarena")
        decision = router.decide(task, "answer", text=prompt)
        router.observe(decision, Outcome(prompt_tokens=decision.prompt_tokens, tokens_estimated=True))
        router.finish(task.id)
        made.append(
            {
                "global index": index,
                "prompt": prompt,
                "prediction": decision.model.name,
                "generated_result": None,
                "cost": None,
                "accuracy": None,
            }
        )
        progress(number)
    return made


def write_submission(
    folder: Path, name: str, made: Sequence[Mapping[str, Any]], models: Sequence[str], robustness: bool = False
) -> tuple[Path, Path]:
    """Write the two files under `folder`, which may be a checkout of RouterArena; nothing is overwritten.

    Args:
        folder: gets `router_inference/predictions` and `router_inference/config`.
        name: of the router.
        made: predictions.
        models: the pool, by RouterArena's names.
        robustness: the predictions are of the robustness split.

    Raises:
        ConfigError: a file is there already with other content.
    """
    suffix = "-robustness" if robustness else ""
    config = {"pipeline_params": {"router_name": name, "router_cls_name": "StepRoute", "models": list(models)}}
    files = (
        (folder / "router_inference" / "predictions" / f"{name}{suffix}.json", list(made)),
        (folder / "router_inference" / "config" / f"{name}.json", config),
    )
    texts = [(path, json.dumps(content, ensure_ascii=False, indent=2) + "\n") for path, content in files]
    for path, text in texts:
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise ConfigError(f"out: {path} is there already; name another router or folder")
    for path, text in texts:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return files[0][0], files[1][0]
