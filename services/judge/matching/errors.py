"""Everything trajectory matching can raise.

MatchingError
├── InvalidOptions      an unknown mode, profile or override
├── UnreadableMessages  what was given as a trajectory is none
├── MatcherFailed       an override given as a function raised
├── TooManyCalls        pairing would take more comparisons than are allowed
└── PackageRaises       the package whose results are reproduced raises on this input
"""

from __future__ import annotations


class MatchingError(Exception):
    """Base of all errors raised by `services.judge.matching`. No verdict was reached."""


class InvalidOptions(MatchingError):
    """A mode, a profile or an override is not one that there is; the message lists those."""


class UnreadableMessages(MatchingError):
    """The messages, calls or graph steps do not have the shape of any known format."""


class MatcherFailed(MatchingError):
    """A function given as an override raised; its error is the cause."""


class TooManyCalls(MatchingError):
    """One tool was called so often on both sides that pairing the calls is refused."""


class PackageRaises(MatchingError):
    """The reproduced package gives no result for this input, it raises.

    `profile` names the package and its version. The message says what it raises about.
    """

    def __init__(self, profile: str, reason: str) -> None:
        self.profile = profile
        self.reason = reason
        super().__init__(f"{profile} raises on this input instead of giving a result: {reason}")
