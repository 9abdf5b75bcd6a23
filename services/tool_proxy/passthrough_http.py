"""Real tools behind HTTP: the arguments are posted as they came, the answer is taken as it is."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from email.message import Message

from services.runtime.outbound import (
    Answer,
    ConnectionBroken,
    NotConnected,
    Outbound,
    OutboundError,
    ResponseEncoded,
    ResponseTooLarge,
)
from services.tool_proxy.passthrough import (
    RealAnswer,
    RealCall,
    decoded,
    failure,
    redacted,
    too_large,
    unavailable,
    undecodable,
)

_CHARSETS = re.compile(
    r"ascii|utf-(8|8-sig|16|16-le|16-be|32|32-le|32-be)|iso8859-\d+|cp\d+|koi8-[ru]|"
    r"euc_(jp|kr)|shift_jis|gb18030|gbk|gb2312|big5"
)
"""By Python's names. It knows others that are no charsets, and some that take for ever."""
_MAX_ERROR_CHARS = 64 * 1024


class HttpTools:
    """Posts calls to real tools."""

    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound

    async def __call__(self, call: RealCall, auth: Mapping[str, str]) -> RealAnswer:
        """The tool's answer; the caller limits the time.

        Raises:
            TargetRefused: the target, or where it redirects to, must not be called.
        """
        headers = {"Content-Type": "application/json", "Idempotency-Key": call.key, **auth}
        content = call.arguments.encode()
        try:
            answer = await self._outbound.send("POST", call.spec.target or "", headers, content)
            try:
                text = _text(await answer.read(), answer.headers.get("content-type", ""))
            finally:
                answer.close()
        except OutboundError as error:
            return no_answer(call.tool, error)
        # Redacted before it is put into anything that would spell it differently.
        return _answer(call.tool, answer, None if text is None else redacted(text, auth))


def no_answer(tool: str, error: OutboundError) -> RealAnswer:
    """What the agent is told of an exchange that came to nothing; addresses stay here."""
    match error:
        case ResponseTooLarge():
            return too_large(tool)
        case ResponseEncoded():
            return undecodable(tool)
        case NotConnected():
            return unavailable(tool, str(error))
        case ConnectionBroken():
            return unavailable(tool, "the connection broke")
    return failure("redirect", f"{tool} redirects without end.")


def _answer(tool: str, answer: Answer, text: str | None) -> RealAnswer:
    status = answer.status
    if 200 <= status < 300:
        return undecodable(tool) if text is None else RealAnswer(text)
    if 300 <= status < 400:
        message = f"{tool} redirects elsewhere, which is not followed."
        return failure("redirect", message, status=status)
    details = {}
    if text and len(text) <= _MAX_ERROR_CHARS:
        details["body"] = decoded(text)
    if status != 429:
        return failure("http_status", f"{tool} answered {status}.", status=status, **details)
    retry_after = answer.headers.get("retry-after", "")
    if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10:
        details["retry_after"] = int(retry_after)
    return failure("rate_limit", "Too many requests.", status=status, **details)


def _text(body: bytes, content_type: str) -> str | None:
    """A body in its declared charset, UTF-8 where it declares none; None where it is not that."""
    try:
        if "charset" not in content_type.lower():
            return body.decode()
        media = Message()
        media["content-type"] = content_type
        charset = media.get_param("charset", "utf-8")
        name = codecs.lookup(charset if isinstance(charset, str) else "?").name
        if not _CHARSETS.fullmatch(name):
            return None
        text = body.decode(name)
        text.encode()  # halves of surrogate pairs cannot be recorded
    except (LookupError, UnicodeError, ValueError):
        return None
    return text
