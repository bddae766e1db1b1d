"""What ALCE (arXiv 2305.14627, section 4) measures of an answer: short answers found, citation recall and precision."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass

from steproute.benchmarks.asqa.judges import Judge
from steproute.benchmarks.asqa.questions import Passage

AT_MOST = 3
"""Citations of a sentence that are looked at, as in ALCE's setting for ASQA."""
_MARK = re.compile(r"\[(\d+)\]")
_END = re.compile(r"(?<=[.!?])((?:\s*\[\d+\])*)\s+(?=[^\W\d_a-z]|\d|[\"'“(])")
_SHORT = re.compile(r"\b(?:[A-Z]|Mr|Mrs|Ms|Dr|St|Jr|Sr|No|vs|etc|e\.g|i\.e|U\.S|U\.K)\.$")


@dataclass(frozen=True)
class Sentence:
    """One sentence of an answer: its text without marks, and the passages it cites, counted from 1."""

    text: str
    cites: Sequence[int]


@dataclass(frozen=True)
class Support:
    """How well the citations hold."""

    recall: float
    """Share of the sentences whose passages, taken together, support them."""
    precision: float
    """Share of the citations that are needed; 0 where there are none."""
    citations: int
    unsupported: Sequence[str] = ()
    """Sentences that are not supported."""


def sentences(answer: str) -> list[Sentence]:
    """The sentences of an answer's first paragraph. A mark belongs to the sentence it is in or directly after."""
    text = answer.strip().split("\n")[0]
    parts: list[str] = []
    start = 0
    for found in _END.finditer(text):
        end = found.end(1)
        if _SHORT.search(text[start : found.start()]):
            continue
        parts.append(text[start:end])
        start = found.end()
    parts.append(text[start:])
    made = [Sentence(_plain(part), tuple(int(mark) for mark in _MARK.findall(part))) for part in parts]
    return [sentence for sentence in made if sentence.text.strip(string.punctuation + " ")]


def _plain(text: str) -> str:
    return re.sub(r"\s+([.,;:!?])", r"\1", " ".join(_MARK.sub("", text).split()))


def support(found: Sequence[Sentence], passages: Sequence[Passage], judge: Judge) -> Support:
    """Citation recall and precision.

    A sentence counts for recall when it cites passages that exist and these together support it. A citation of such a
    sentence counts for precision unless it is irrelevant: it does not support the sentence alone, and the others do
    without it. Sentences that cite a passage that does not exist count as unsupported, and their citations not at all.
    """
    good = needed = citations = 0
    unsupported = []
    for sentence in found:
        cites = list(sentence.cites)
        held = False
        if cites and all(1 <= cite <= len(passages) for cite in cites):
            cites = cites[:AT_MOST]
            citations += len(cites)
            held = _entails(judge, passages, cites, sentence.text)
        if not held:
            unsupported.append(sentence.text)
            continue
        good += 1
        for place, cite in enumerate(cites):
            rest = cites[:place] + cites[place + 1 :]
            irrelevant = (
                bool(rest)
                and not _entails(judge, passages, [cite], sentence.text)
                and _entails(judge, passages, rest, sentence.text)
            )
            needed += not irrelevant
    recall = good / len(found) if found else 0.0
    return Support(recall, needed / citations if citations else 0.0, citations, unsupported)


def _entails(judge: Judge, passages: Sequence[Passage], cites: Sequence[int], claim: str) -> bool:
    return judge.entails("\n".join(passages[cite - 1].whole for cite in cites), claim)


def answers_found(answer: str, short_answers: Sequence[Sequence[str]]) -> float:
    """Share of the question's readings for which one of the short answers is in the answer (ALCE's STR-EM)."""
    text = f" {normalised(_MARK.sub('', answer))} "
    hits = [any(f"{normalised(one)}" in text for one in equal if normalised(one)) for equal in short_answers]
    return sum(hits) / len(hits) if hits else 0.0


def normalised(text: str) -> str:
    """Lower case, without punctuation, articles and spare spaces (the rule of SQuAD)."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(word for word in kept.split() if word not in ("a", "an", "the"))
