"""The agent's sentences. It is stateless, so it also recognises them in the history."""

from __future__ import annotations

from datetime import date

ASK_ORDER = "What is the order ID? It looks like ORD-1234."
ASK_EMAIL = "What is the email on your account?"
ASK_POSTCODE = "What is the postcode on your account?"
ASK_CODE = "What is the six-digit verification code from your order confirmation?"
ASK_ADDRESS = "What is the new address?"
CONFIRM = "Shall I go ahead?"
OFFER_CASE = "Would you like me to open a case with a colleague?"

VERIFIED = "Thank you, I have verified your identity."
MISMATCH = "That does not match our records."
UNAVAILABLE = (
    "I'm sorry, our order system is temporarily unavailable, so this is not done. "
    "Please try again in a little while."
)
UNCERTAIN = (
    "I'm sorry, our order system is temporarily unavailable and I can't confirm whether this went "
    "through. I won't repeat it blindly; please check with us again in a little while."
)
UNVERIFIED = "I'm sorry, I can't do that without verifying your identity."
RUSHED = "I understand that you are in a hurry, but I can't skip the identity check."
ANYTHING_ELSE = "Is there anything else I can help with?"
MENU = (
    "I can help with refunds, deliveries, address changes, cancellations, invoices and complaints. "
    "How can I help?"
)
KEPT = "All right, I have left everything as it is."
GOODBYE = "You're welcome. Goodbye!"


def money(amount: float, currency: str) -> str:
    """`49.90 EUR`."""
    return f"{amount:.2f} {currency}"


def day(iso: str) -> str:
    """`17 January 2026`. Raises ValueError for anything but an ISO date."""
    value = date.fromisoformat(iso)
    return f"{value.day} {value:%B %Y}"
