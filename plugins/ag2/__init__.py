"""AG2 group chats, both generations: every LLM call goes to the model that steproute chooses for it."""

from __future__ import annotations

import importlib.util

from steproute.plugins.ag2.attachment import Attachment
from steproute.plugins.ag2.entry import attach
from steproute.plugins.ag2.meter import Meter, Totals
from steproute.plugins.ag2.speakers import END, speaker_selector

if importlib.util.find_spec("ag2") is None and importlib.util.find_spec("autogen") is None:
    raise ImportError(
        "steproute.plugins.ag2 needs AG2; install it with: pip install 'steproute[ag2]' (ag2 >= 1.0) "
        "or 'steproute[ag2-classic]' (0.10 to 0.14)"
    )

__all__ = ["END", "Attachment", "Meter", "Totals", "attach", "speaker_selector"]
