"""What can go wrong on the bus.

BusError
├── BusMisconfigured   a setting contradicts another; found before anything connects
├── BusUnavailable     the broker did not answer in time; trying again may help
├── BusRefused         the broker said no (authorisation, version); trying again will not help
├── RecordTooLarge     this one record can never be appended
└── BusClosed          the client was stopped, or never started
"""


class BusError(Exception):
    """The root of everything this package raises on purpose."""


class BusMisconfigured(BusError):
    """A setting is wrong; the message names it."""


class BusUnavailable(BusError):
    """The broker did not do it before the deadline.

    For an append the outcome is *unknown*: the records may be in the log, or may still get there
    until `BusSettings.delivery_timeout_ms` has passed. Appending again is right only for records
    whose ids let readers ignore the second copy.
    """


class BusRefused(BusError):
    """The broker answered and refused; a retry without a change elsewhere gets the same answer."""


class RecordTooLarge(BusError):
    """A record exceeds what the client or the topic accepts. None of the call's other records is
    lost by it silently: the whole append fails.
    """


class BusClosed(BusError):
    """The client is not running."""
