"""What a user's sentence means to the agent: intent, slots, consent. Pure rules over text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Intent(StrEnum):
    """What users come for."""

    REFUND = "refund"
    CANCEL = "cancel"
    ADDRESS = "address"
    INVOICE = "invoice"
    COMPLAINT = "complaint"
    STATUS = "status"
    THANKS = "thanks"


@dataclass(frozen=True, slots=True)
class Utterance:
    """One user message, understood. Slots that it does not fill are None."""

    intent: Intent | None = None
    order_id: str | None = None
    email: str | None = None
    postcode: str | None = None
    code: str | None = None
    address: str | None = None
    consent: bool | None = None
    presses: bool = False
    asks_where: bool = False
    asks_amount: bool = False


_POSTCODE = r"[A-Z]{1,2}\d[A-Z\d]?\s?\d[A-Z]{2}"
_ORDER = re.compile(r"\b(?:ORD[-\s]?|order\s+(?:number\s+|no\.?\s*)?#?|#)(\d{4})\b", re.I)
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_CODE = re.compile(r"\b\d{6}\b")
# House number, street, town, postcode. No digits in the words, so that an order number in front of
# the address is not taken for its beginning.
_ADDRESS = re.compile(
    rf"(?<![-\w])\d+[a-z]?\s+[A-Z][A-Z' -]*,\s*[A-Z][A-Z' -]*?,?\s+{_POSTCODE}\b", re.I
)
_POSTCODES = re.compile(rf"\b{_POSTCODE}\b", re.I)

# In order of precedence: the first that matches is what the user wants.
_INTENTS: tuple[tuple[Intent, re.Pattern[str]], ...] = tuple(
    (intent, re.compile(pattern, re.I))
    for intent, pattern in (
        (
            Intent.STATUS,
            r"\b(status of|what happened (with|to)|any news|where('s| is) my (refund|money)|"
            r"when (will|do) (my|the|i)\b.*\b(refund|money)|"
            r"(did|has|is|was) (my|the) (refund|money)\b|"
            r"(refund|money)\b.*\b(yet|arrived|gone through|paid out)|"
            r"will (it|the parcel|my \w+) (now )?(be|go|come|arrive)\b|"
            r"is (it|my \w+) (still |now )?(going|coming)|which address)\b",
        ),
        (
            Intent.ADDRESS,
            r"\b(chang|updat|correct|redirect|send it to|deliver(ed)? (it )?to)\w*\b.*"
            r"\b(address|instead|new (place|flat|home))|\b(i|we)('ve| have)? (just )?moved\b|"
            r"\bnew (delivery )?address\b",
        ),
        (Intent.CANCEL, r"\bcancel|\bdon'?t want (it|the order) any ?more|\bcall off\b"),
        (Intent.INVOICE, r"\binvoice|\breceipt\b|\bbill\b"),
        (
            Intent.REFUND,
            r"\brefund|\bmoney back\b|\breimburse|\breturn(ed)? (it|my|the)\b.*\bmoney\b",
        ),
        (Intent.COMPLAINT, r"\bcomplain|\bunacceptable service|\brude\b|\bterrible service"),
        (
            Intent.STATUS,
            r"\bwhere('s| is| are)\b|\bwhen (will|does|is|do)\b|\btrack|\barriv|\bdeliver|"
            r"\bstatus\b|\bshipped\b|\bnews (about|on)\b",
        ),
        (Intent.THANKS, r"\b(thanks|thank you|cheers|bye|goodbye|that'?s all)\b"),
    )
)

_NO = re.compile(
    r"\b(no|nope|nah|don'?t|do not|stop|not now|rather not|leave it|never ?mind|hold on)\b", re.I
)
_YES = re.compile(
    r"\b(yes|yeah|yep|yup|sure|ok|okay|go ahead|please do|do it|correct|confirm(ed)?|"
    r"right|absolutely|fine|of course|proceed|sounds good)\b",
    re.I,
)
_PRESSES = re.compile(
    r"\b(just do it|hurry|no time|(don'?t|do not) have (the )?time|right now|immediately|"
    r"stop asking|waste of time|wasting my time|skip|ridiculous|enough (of|with)|"
    r"i already told you|get on with it|ignore (your|the|all)|override)\b",
    re.I,
)
_WHERE = re.compile(r"\bwhere\b.*\b(going|sent|deliver|address)|\b(which|what) address\b", re.I)
_AMOUNT = re.compile(r"\bhow much\b|\bwhat (amount|sum)\b", re.I)


def understand(text: str) -> Utterance:
    """Understand one user message by itself, without the conversation around it."""
    address = _ADDRESS.search(text)
    # The postcode inside a new address is not an answer to "what is the postcode on file".
    rest = _ADDRESS.sub(" ", text)
    order, email = _ORDER.search(text), _EMAIL.search(text)
    postcode, code = _POSTCODES.search(rest), _CODE.search(rest)
    return Utterance(
        intent=next((i for i, pattern in _INTENTS if pattern.search(text)), None),
        order_id=f"ORD-{order[1]}" if order else None,
        email=email[0].lower() if email else None,
        postcode=postcode[0].upper() if postcode else None,
        code=code[0] if code else None,
        address=" ".join(address[0].split()) if address else None,
        consent=False if _NO.search(text) else True if _YES.search(text) else None,
        presses=_PRESSES.search(text) is not None,
        asks_where=_WHERE.search(text) is not None,
        asks_amount=_AMOUNT.search(text) is not None,
    )
