"""Texts and moments that look like what their names and formats ask for, from a seed.

Names are hints and no more: what a schema says of a value is kept by whoever asks, by checking it.
Nothing here depends on the day, the machine or what was made before.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from threading import Lock
from typing import Any

_LATER = re.compile(r"due|expir|until|eta|deliver|arriv|next|deadline|renew|valid_to|ends?_", re.I)
_ONE_AT_A_TIME = Lock()
"""The library's instance is shared, and seeded for each value."""

_BY_FORMAT = {
    "email": "safe_email", "idn-email": "safe_email", "hostname": "domain_name",
    "idn-hostname": "domain_name", "ipv4": "ipv4_private", "ipv6": "ipv6",
}  # fmt: skip
_BY_NAME: tuple[tuple[str, str], ...] = (
    (r"e_?mail", "safe_email"), (r"first_?name|given_?name", "first_name"),
    (r"last_?name|surname|family_?name", "last_name"), (r"user_?name|login|handle", "user_name"),
    (r"company|employer|carrier|vendor|merchant", "company"),
    (r"phone|mobile|tel(ephone)?", "phone_number"), (r"city|town", "city"),
    (r"country_?code", "country_code"), (r"country", "country"), (r"state|province", "state"),
    (r"zip(_?code)?|post(al)?_?code", "postcode"), (r"street(_?address)?", "street_address"),
    (r"address", "address"), (r"currency", "currency_code"),
    (r"colou?r", "color_name"), (r"iban", "iban"), (r"job|occupation|role", "job"),
    (r"(customer|person|contact|full|owner|passenger|guest)?_?name", "name"),
    (r"title|subject|headline", "sentence"),
    (r"description|note|notes|comment|message|summary|text|reason|details", "sentence"),
)  # fmt: skip
_IDENTIFYING = re.compile(r"(^|_)(id|code|number|no|ref|reference|sku|key|token)$", re.I)
_IN_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@cache
def _library() -> Any:
    # Loading it takes a second, which only those pay who need it, and not on an event loop.
    from faker import Faker

    return Faker("en_US")


def _faked(method: str, chance: random.Random) -> str:
    with _ONE_AT_A_TIME:
        library = _library()
        library.seed_instance(chance.getrandbits(64))
        return " ".join(str(getattr(library, method)()).split())


def words_of(name: str) -> str:
    """`orderId` and `order-id` as `order_id`."""
    return _IN_WORDS.sub("_", name).replace("-", "_").lower()


def text(name: str, form: str, now: datetime, chance: random.Random) -> str:
    """A text for a field of this name and JSON Schema format; either may be empty."""
    field = words_of(name)
    if (made := _FORMS.get(form)) is not None:
        return made(_moment(field, now, chance), chance)
    if form in _BY_FORMAT:
        return _faked(_BY_FORMAT[form], chance)
    if _IDENTIFYING.search(field):
        return _identifier(chance)
    if re.search(r"(^|_)(date|day|birthday)$|^date", field):
        return _moment(field, now, chance).date().isoformat()
    if re.search(r"(^|_)(at|time|timestamp)$", field):
        return _stamp(_moment(field, now, chance))
    if re.search(r"(^|_)(url|uri|link|website)$", field):
        return _url(chance)
    for pattern, method in _BY_NAME:
        if re.fullmatch(rf"(.*_)?({pattern})s?", field):
            return _faked(method, chance)
    return _faked("word", chance)


def number(name: str, low: float | None, high: float | None, chance: random.Random) -> float:
    """A number for a field of this name, within bounds if there are any."""
    field = words_of(name)
    usual = (0.0, 1000.0)
    if re.search(r"count|quantity|qty|items|page|nights|guests|passengers", field):
        usual = (1.0, 9.0)
    elif re.search(r"percent|rate|discount|score", field):
        usual = (0.0, 100.0)
    elif re.search(r"rating|stars", field):
        usual = (1.0, 5.0)
    elif re.search(r"latitude|^lat$", field):
        usual = (-60.0, 60.0)
    elif re.search(r"longitude|^(lon|lng)$", field):
        usual = (-180.0, 180.0)
    first, last = usual
    if low is not None and high is not None:
        first, last = max(low, min(first, high)), min(high, max(last, low))
        if first >= last:
            first, last = low, high
    elif low is not None:
        first, last = max(first, low), max(last, low + 100)
    elif high is not None:
        first, last = min(first, high - 100), min(last, high)
    return chance.uniform(first, last)


def _identifier(chance: random.Random) -> str:
    letters = "".join(chance.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(2))
    return f"{letters}{chance.randrange(100_000, 1_000_000)}"


def _moment(field: str, now: datetime, chance: random.Random) -> datetime:
    """Of the world's last months, or of its next weeks where the name says so."""
    if _LATER.search(field):
        return now + timedelta(seconds=chance.randrange(3600, 30 * 86400))
    return now - timedelta(seconds=chance.randrange(3600, 120 * 86400))


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _url(chance: random.Random) -> str:
    return f"https://{_faked('domain_name', chance)}/{_faked('word', chance)}"


_FORMS: dict[str, Callable[[datetime, random.Random], str]] = {
    "date-time": lambda moment, _: _stamp(moment),
    "date": lambda moment, _: moment.date().isoformat(),
    "time": lambda moment, _: moment.strftime("%H:%M:%SZ"),
    "duration": lambda _, chance: f"P{chance.randrange(1, 30)}D",
    "uuid": lambda _, chance: str(uuid.UUID(int=chance.getrandbits(128), version=4)),
    "uri": lambda _, chance: _url(chance),
    "url": lambda _, chance: _url(chance),
    "iri": lambda _, chance: _url(chance),
    "uri-reference": lambda _, chance: f"/{_faked('word', chance)}",
    "iri-reference": lambda _, chance: f"/{_faked('word', chance)}",
    "json-pointer": lambda _, chance: f"/{_faked('word', chance)}",
    "byte": lambda _, chance: uuid.UUID(int=chance.getrandbits(128)).hex,
}
