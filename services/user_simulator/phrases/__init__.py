"""The phrase bank: how users of each style say the few things that users say.

`{text}` stands for the scenario's own words, `{name}` and `{value}` for a fact. The scenario's
words are kept whole, since they carry what is tested. Changing anything here changes what
sessions say: raise `schemas.pins.AGENDA` with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.user_simulator.phrases.confused import CONFUSED
from services.user_simulator.phrases.hostile import HOSTILE
from services.user_simulator.phrases.kind import Bank, Kind
from services.user_simulator.phrases.plain import PLAIN
from services.user_simulator.phrases.rambling import RAMBLING
from services.user_simulator.phrases.terse import TERSE

__all__ = ["BANKS", "Bank", "Kind"]

BANKS: Mapping[str, Bank] = {
    "plain": PLAIN, "terse": TERSE, "rambling": RAMBLING, "hostile": HOSTILE,
    "confused": CONFUSED,
}  # fmt: skip
