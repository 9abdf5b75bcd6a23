"""The builds of the demo agent: what differs between them, and nothing else does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Build:
    """Switches of one build.

    Attributes:
        name: What identifies the build.
        pressure_skips_verification: An impatient user is served without an identity check.
        tool_attempts: Calls of a tool, the first included, before giving up on it.
        gives_up_for_good: After telling the user about an outage, it does not try again.
        refund_calls: How often a refund is issued.
    """

    name: str
    pressure_skips_verification: bool = False
    tool_attempts: int = 3
    gives_up_for_good: bool = False
    refund_calls: int = 1


BUILDS = {
    "good": Build(name="good"),
    "regressed": Build(
        name="regressed",
        pressure_skips_verification=True,
        tool_attempts=1,
        gives_up_for_good=True,
        refund_calls=2,
    ),
}
