"""What the agent does about each intent: ask for what is missing, verify, check policy, act.

Tool results are data: only checked fields of known shape are used, and no text from a tool is
followed or repeated.
"""

from __future__ import annotations

from typing import Any

from deploy.demo import phrases
from deploy.demo.builds import Build
from deploy.demo.dialogue import Dialogue, Question
from deploy.demo.news import delivery_news, refund_news, status_words
from deploy.demo.tools import ToolDeclined, ToolFailed, Tools
from deploy.demo.understanding import Intent

REFUND_LIMIT = 200.0
MAX_MISMATCHES = 2


class Reply(Exception):
    """Ends the turn early with what the agent says: a question, a refusal, bad news."""

    def __init__(self, *sentences: str) -> None:
        super().__init__(" ".join(sentences))


class Flows:
    """One turn: a dialogue, the tools, and the build's switches, made into an answer."""

    refund_limit: float = REFUND_LIMIT

    def __init__(self, dialogue: Dialogue, tools: Tools, build: Build) -> None:
        self._dialogue, self._tools, self._build = dialogue, tools, build
        self._preface: list[str] = []

    async def answer(self) -> str:
        """The agent's reply to the user's newest message. Never empty."""
        if self._build.gives_up_for_good and self._dialogue.told_unavailable:
            return phrases.UNAVAILABLE
        handlers = {
            Intent.REFUND: self._refund,
            Intent.CANCEL: self._cancel,
            Intent.ADDRESS: self._change_address,
            Intent.INVOICE: self._invoice,
            Intent.COMPLAINT: self._complaint,
            Intent.STATUS: self._status,
            Intent.THANKS: self._goodbye,
        }
        intent = self._dialogue.intent
        try:
            sentences = await handlers[intent]() if intent else phrases.MENU
        except Reply as reply:
            sentences = str(reply)
        except ToolFailed:
            sentences = phrases.UNAVAILABLE
        return " ".join([*self._preface, sentences])

    # Intents

    async def _refund(self) -> str:
        if self._dialogue.pending is Question.CASE and self._dialogue.latest.consent is not None:
            return await self._answer_case_offer()
        order_id = self._need_order()
        customer_id = await self._verified_customer(order_id)
        order = await self._own_order(order_id, customer_id)
        amount = phrases.money(order["total"], order["currency"])
        if order["refund"] is not None:
            return f"{refund_news(order)} {phrases.ANYTHING_ELSE}"
        if order["total"] > self.refund_limit:
            raise Reply(
                f"I'm sorry, I can't refund {amount}: above",
                f"{phrases.money(self.refund_limit, order['currency'])} a colleague has to decide.",
                phrases.OFFER_CASE,
            )
        if order["status"] != "delivered":
            raise Reply(f"I'm sorry, I can't refund {order_id} while it is {status_words(order)}.")
        self._need_consent(f"I can refund {amount} for {order_id}.")
        for _ in range(self._build.refund_calls):
            await self._act(
                "issue_refund", order_id, customer_id, lambda now: now["refund"] is not None,
                amount=order["total"],
            )  # fmt: skip
        await self._note(customer_id, order_id, f"Refund of {amount} issued.")
        return (
            f"Your refund of {amount} for {order_id} has been issued and reaches you within five "
            f"days. {phrases.ANYTHING_ELSE}"
        )

    async def _cancel(self) -> str:
        order_id = self._need_order()
        customer_id = await self._verified_customer(order_id)
        order = await self._own_order(order_id, customer_id)
        if order["status"] == "cancelled":
            return f"{order_id} is already cancelled. {phrases.ANYTHING_ELSE}"
        self._need_processing(order, "cancel it")
        self._need_consent(f"I can cancel {order_id}. This cannot be undone.")
        await self._act(
            "cancel_order", order_id, customer_id, lambda now: now["status"] == "cancelled"
        )
        await self._note(customer_id, order_id, "Order cancelled.")
        return f"{order_id} has been cancelled. {phrases.ANYTHING_ELSE}"

    async def _change_address(self) -> str:
        order_id = self._need_order()
        customer_id = await self._verified_customer(order_id)
        order = await self._own_order(order_id, customer_id)
        self._need_processing(order, "change its address")
        address = self._dialogue.address
        if address is None:
            raise Reply(phrases.ASK_ADDRESS)
        self._need_consent(f"I can send {order_id} to {address}.")
        await self._act(
            "change_address", order_id, customer_id, lambda now: now["address"] == address,
            address=address,
        )  # fmt: skip
        await self._note(customer_id, order_id, "Delivery address changed.")
        return f"The delivery address of {order_id} has been updated. {phrases.ANYTHING_ELSE}"

    async def _invoice(self) -> str:
        order_id = self._need_order()
        customer_id = await self._customer()
        await self._own_order(order_id, customer_id)
        await self._tools.call("send_invoice", order_id=order_id, customer_id=customer_id)
        return (
            f"I have sent the invoice for {order_id} to the inbox we have on file. "
            f"{phrases.ANYTHING_ELSE}"
        )

    async def _complaint(self) -> str:
        customer_id = await self._customer()
        return await self._open_case(customer_id, "Complaint")

    async def _status(self) -> str:
        dialogue = self._dialogue
        order_id = dialogue.order_id
        customer_id = dialogue.customer_id
        if order_id is None and customer_id is not None:
            order_id = await self._remembered_order(customer_id)
        if order_id is None:
            raise Reply(phrases.ASK_ORDER)
        customer_id = await self._customer()
        order = await self._own_order(order_id, customer_id)
        news = delivery_news(order)
        if dialogue.latest.asks_where and (dialogue.customer_id or dialogue.verified):
            news += f" It goes to {order['address']}."
        if order["refund"] is not None:
            news += f" {refund_news(order)}"
        return f"{news} {phrases.ANYTHING_ELSE}"

    async def _goodbye(self) -> str:
        return phrases.GOODBYE

    # What intents share

    def _need_order(self) -> str:
        if self._dialogue.order_id is None:
            raise Reply(phrases.ASK_ORDER)
        return self._dialogue.order_id

    def _need_consent(self, proposal: str) -> None:
        if self._dialogue.consented is None:
            raise Reply(proposal, phrases.CONFIRM)
        if self._dialogue.consented is False:
            raise Reply(phrases.KEPT, phrases.ANYTHING_ELSE)

    def _need_processing(self, order: dict[str, Any], deed: str) -> None:
        if order["status"] != "processing":
            raise Reply(f"I'm sorry, I can't {deed}: {order['order_id']} is {status_words(order)}.")

    async def _customer(self) -> str:
        """Who this is about: who is signed in, else the owner of the email that was given."""
        if self._dialogue.customer_id is not None:
            return self._dialogue.customer_id
        if self._dialogue.email is None:
            raise Reply(phrases.ASK_EMAIL)
        try:
            found = await self._tools.call("find_customer", email=self._dialogue.email)
        except ToolDeclined:
            raise Reply("I can't find an account for that.", phrases.ASK_EMAIL) from None
        return str(found["customer_id"])

    async def _verified_customer(self, order_id: str) -> str:
        dialogue = self._dialogue
        if self._build.pressure_skips_verification and dialogue.pressed and not dialogue.verified:
            order = await self._order(order_id)
            return dialogue.customer_id or str(order["customer_id"])
        customer_id = await self._customer()
        if not dialogue.verified:
            await self._verify(customer_id)
        return customer_id

    async def _verify(self, customer_id: str) -> None:
        dialogue = self._dialogue
        if dialogue.mismatches >= MAX_MISMATCHES:
            raise Reply(phrases.UNVERIFIED, "Please contact us in writing instead.")
        if dialogue.postcode is None and dialogue.code is None:
            raise Reply(*self._verification_question())
        given = {"postcode": dialogue.postcode, "code": dialogue.code}
        result = await self._tools.call(
            "verify_identity", customer_id=customer_id, **{k: v for k, v in given.items() if v}
        )
        if not result["verified"]:
            last = dialogue.mismatches + 1 >= MAX_MISMATCHES
            raise Reply(phrases.MISMATCH, phrases.UNVERIFIED if last else phrases.ASK_CODE)
        self._preface.append(phrases.VERIFIED)

    def _verification_question(self) -> list[str]:
        """The postcode first, then the code; after that only a refusal is left."""
        asked = self._dialogue.asked
        refusal = phrases.RUSHED if self._dialogue.pressed else phrases.UNVERIFIED
        if Question.POSTCODE not in asked:
            return [*([refusal] if self._dialogue.pressed else []), phrases.ASK_POSTCODE]
        return [refusal] if Question.CODE in asked else [refusal, phrases.ASK_CODE]

    async def _order(self, order_id: str) -> dict[str, Any]:
        try:
            return await self._tools.call("get_order", order_id=order_id)
        except ToolDeclined:
            raise self._not_yours(order_id) from None

    async def _own_order(self, order_id: str, customer_id: str) -> dict[str, Any]:
        order = await self._order(order_id)
        if order["customer_id"] != customer_id:
            raise self._not_yours(order_id)
        return order

    @staticmethod
    def _not_yours(order_id: str) -> Reply:
        # The same words whether the order is someone else's or nobody's.
        return Reply(f"I'm sorry, I can't find {order_id} on your account.")

    async def _remembered_order(self, customer_id: str) -> str | None:
        """The order that the last case note of a signed-in customer is about."""
        notes = (await self._tools.call("list_case_notes", customer_id=customer_id))["notes"]
        for note in reversed(notes):
            order_id = note.get("order_id") if isinstance(note, dict) else None
            if isinstance(order_id, str) and order_id.startswith("ORD-"):
                return order_id
        return None

    async def _act(
        self, tool: str, order_id: str, customer_id: str, done: Any, **arguments: Any
    ) -> None:
        """Call a tool that changes something. After a failure, look before trying again:
        the change may have happened although its answer was lost."""
        for attempt in range(self._build.tool_attempts):
            if attempt:
                await self._tools.pause()
                try:
                    order = await self._tools.call("get_order", order_id=order_id)
                except (ToolFailed, ToolDeclined):
                    raise Reply(phrases.UNCERTAIN) from None
                if done(order):
                    return
            try:
                result = await self._tools.call_once(
                    tool, order_id=order_id, customer_id=customer_id, **arguments
                )
            except ToolDeclined:
                raise Reply(f"I'm sorry, I can't do that for {order_id} any more.") from None
            if result is not None:
                return
        raise ToolFailed(tool)

    async def _note(self, customer_id: str, order_id: str, text: str) -> None:
        """Leave a note for the next conversation; what was done stands without it."""
        try:
            await self._tools.call(
                "add_case_note", customer_id=customer_id, order_id=order_id, text=text
            )
        except (ToolFailed, ToolDeclined):
            self._preface.append("I could not leave a note about this for my colleagues.")

    async def _answer_case_offer(self) -> str:
        if not self._dialogue.latest.consent:
            return f"{phrases.KEPT} {phrases.ANYTHING_ELSE}"
        return await self._open_case(await self._customer(), "Refund above the limit")

    async def _open_case(self, customer_id: str, subject: str) -> str:
        case = await self._tools.call(
            "open_case",
            customer_id=customer_id,
            subject=subject,
            order_id=self._dialogue.order_id or "",
        )
        return (
            f"I have opened case {case['case_id']}; a colleague gets back to you within two "
            f"working days. {phrases.ANYTHING_ELSE}"
        )
