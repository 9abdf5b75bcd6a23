"""Text from elsewhere, made safe for a terminal: what is shown cannot move the cursor, change
colours or reorder what stands around it.
"""

from __future__ import annotations

import unicodedata

_KEPT = frozenset("\u200c\u200d")  # joiners that scripts and emoji need


def printable(text: str, *, keep_newlines: bool = False) -> str:
    r"""The text with control, format and unassigned characters written as escapes.

    >>> printable("red\x1b[31m\u202eevil")
    'red\\x1b[31m\\u202eevil'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if (char == "\n" and keep_newlines) or _is_harmless(char) else _escaped(char)
        for char in text
    )


def printable_bytes(data: bytes, limit: int = 200) -> str:
    """Bytes as text where they are text, shortened."""
    shown = data[:limit].decode("utf-8", "backslashreplace")
    rest = len(data) - limit
    return printable(shown) + (f"… ({rest} more bytes)" if rest > 0 else "")


def _is_harmless(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or (
        char in _KEPT
    )


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
