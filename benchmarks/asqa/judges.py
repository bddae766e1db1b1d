"""Does a passage support a sentence? Three judges: shared words, a local model for entailment, an LLM."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, Protocol

from steproute.approval import approval_file, approve, needs_approval
from steproute.backend import Backend, ChatRequest
from steproute.benchmarks.pool import candidates
from steproute.errors import ConfigError, unknown_name

NAMES = ("lexical", "llm", "nli")
_COMMON = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "been",
        "but",
        "by",
        "can",
        "did",
        "do",
        "does",
        "for",
        "from",
        "had",
        "has",
        "have",
        "he",
        "her",
        "his",
        "in",
        "into",
        "is",
        "it",
        "its",
        "of",
        "on",
        "or",
        "she",
        "that",
        "the",
        "their",
        "them",
        "there",
        "they",
        "this",
        "to",
        "was",
        "were",
        "which",
        "who",
        "whom",
        "whose",
        "will",
        "with",
        "would",
        "also",
        "not",
        "when",
        "where",
        "what",
    ]
)
_WORD = re.compile(r"[^\W_]+", re.UNICODE)


class Judge(Protocol):
    """Decides on entailment. May be called from several threads."""

    def entails(self, premise: str, claim: str) -> bool:
        """Whether the premise supports all of the claim."""
        ...


def content_words(text: str) -> set[str]:
    """The words of a text that carry meaning, in lower case; numbers are words."""
    return {word for word in _WORD.findall(text.lower()) if word not in _COMMON}


class LexicalJudge:
    """Enough of the claim's words, and all its numbers, are in the premise. Blind to negation and order: for tests."""

    def __init__(self, share: float = 0.8):
        """Set how many of the words are enough.

        Raises:
            ConfigError: the share is not in (0, 1].
        """
        if not 0 < share <= 1:
            raise ConfigError(f"share: seen {share!r}; allowed: a share above 0, at most 1")
        self._share = share

    def entails(self, premise: str, claim: str) -> bool:
        """See `Judge.entails`."""
        wanted, given = content_words(claim), content_words(premise)
        if not wanted or any(word.isdigit() and word not in given for word in wanted):
            return False
        return len(wanted & given) >= self._share * len(wanted)


class NliJudge:
    """A cross-encoder for natural language inference, run in this process by sentence-transformers."""

    def __init__(self, model: str = "cross-encoder/nli-deberta-v3-small"):
        """Load the model, by its name on the hub or from a folder.

        Raises:
            ImportError: sentence-transformers is missing; names the extra.
            ConfigError: the model has no label for entailment.
        """
        try:
            from sentence_transformers import CrossEncoder
        except ImportError as error:
            raise ImportError('the judge nli needs: pip install "steproute[embed-torch]"') from error
        self._model: Any = CrossEncoder(model)
        labels = {int(key): str(label).lower() for key, label in self._model.model.config.id2label.items()}
        found = [key for key, label in labels.items() if label.startswith("entail")]
        if not found:
            raise ConfigError(f"judge-model: {model} has the labels {', '.join(labels.values())}; needed: entailment")
        self._entailment = found[0]
        self._lock = threading.Lock()

    def entails(self, premise: str, claim: str) -> bool:
        """See `Judge.entails`: entailment is the likeliest of the labels."""
        with self._lock:
            scores = list(self._model.predict([(premise, claim)])[0])
        return max(range(len(scores)), key=lambda label: scores[label]) == self._entailment


class LlmJudge:
    """A model that is asked; `calls` counts the questions, which are no part of a run's costs."""

    def __init__(self, backend: Backend, model: str):
        self._backend, self._model = backend, model
        self.calls = 0

    def entails(self, premise: str, claim: str) -> bool:
        """See `Judge.entails`.

        Raises:
            BackendError: the model cannot be reached.
        """
        self.calls += 1
        question = (
            f"Passage:\n{premise}\n\nSentence:\n{claim}\n\n"
            "Does the passage by itself support everything the sentence says? Reply with yes or no."
        )
        request = ChatRequest(self._model, [{"role": "user", "content": question}], temperature=0.0, max_tokens=5)
        return self._backend.complete(request).content.strip().lower().startswith("yes")


class Remembered:
    """A judge that is asked every question once."""

    def __init__(self, judge: Judge):
        self._judge = judge
        self._known: dict[tuple[str, str], bool] = {}

    def entails(self, premise: str, claim: str) -> bool:
        """See `Judge.entails`."""
        if (premise, claim) not in self._known:
            self._known[premise, claim] = self._judge.entails(premise, claim)
        return self._known[premise, claim]


def make_judge(name: str, model: str | None = None, base_url: str | None = None) -> Judge:
    """A judge by name.

    Args:
        name: one of `NAMES`.
        model: of `nli` or `llm`.
        base_url: server of the model of `llm`; None = its provider's.

    Raises:
        ConfigError: there is no such judge, or `llm` lacks its model.
        ApprovalError: the judge would be paid for, and no approval file covers it.
        ImportError: what the judge needs is missing; names the extra.
    """
    makers: dict[str, Callable[[], Judge]] = {
        "lexical": LexicalJudge,
        "nli": lambda: NliJudge() if model is None else NliJudge(model),
        "llm": lambda: _llm(model, base_url),
    }
    if name not in makers:
        raise ConfigError(unknown_name("judge", name, NAMES))
    return Remembered(makers[name]())


def _llm(model: str | None, base_url: str | None) -> Judge:
    if model is None:
        raise ConfigError("judge-model: --judge llm needs --judge-model, e.g. openai/gpt-4.1")
    from steproute.integrations.litellm import LiteLLMBackend

    pool = candidates([model], "litellm", base_url=base_url)
    server = {"api_base": base_url} if base_url else {}
    backend: Backend = LiteLLMBackend({model: {"model": model, **server}})
    if needs_approval("litellm", base_url, pool):
        backend = approve(backend, approval_file(), pool, "asqa")
    return LlmJudge(backend, model)
