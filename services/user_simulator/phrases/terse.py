"""How a terse user says things."""

from __future__ import annotations

from services.user_simulator.phrases.kind import Bank, Kind

TERSE: Bank = {
    Kind.GREETING: ("{text}", "Hi. {text}", "Hello. {text}", "Hey. {text}", "Help needed: {text}"),
    Kind.TAIL: ("", "", "", "Thx.", "Quick please."),
    Kind.NEXT_GOAL: ("Next: {text}", "Also: {text}", "And: {text}", "Ok. {text}"),
    Kind.NUDGE: (
        "Again: {text}", "And? {text}", "Not what I asked. {text}", "Still open: {text}",
        "{text}", "Repeat: {text}",
    ),
    Kind.FACT: ("{value}", "{name}: {value}", "That's {value}.", "It's {value}."),
    Kind.FACTS: ("{text}", "Ok: {text}", "Here: {text}"),
    Kind.AGAIN: ("Said that. {text}", "Again: {text}", "See above. {text}"),
    Kind.YES: ("Yes.", "Yes, go ahead.", "Yep.", "Yes please."),
    Kind.NO: ("No.", "Nope.", "No thanks.", "No, don't."),
    Kind.RIGHT: ("Yes.", "Correct.", "Yes, right.", "Yep, that's it."),
    Kind.CORRECT: (
        "No. {name}: {value}", "Wrong. It's {value}.", "No, {value}.", "{value}, not that.",
    ),
    Kind.WRONG: ("Wrong one. {text}", "No. {text}", "Not that. {text}"),
    Kind.VOLUNTEER: ("{text}", "FYI: {text}", "Info: {text}"),
    Kind.IMPATIENT: ("Too slow.", "Come on.", "Last try.", "Getting long."),
    Kind.UNKNOWN: ("Don't know.", "No idea.", "Don't have that.", "Not known."),
    Kind.RETRY: ("Ok, try again.", "Fine, try again.", "Ok. Retry please.", "Waiting. Try again."),
    Kind.WAIT: ("Ok.", "Waiting.", "Fine."),
    Kind.THANKS: ("Thanks.", "Thx, bye.", "Done, thanks.", "Ok, bye."),
    Kind.QUIT: ("Forget it.", "Never mind.", "I'm out. Bye."),
    Kind.DID: ("Done. {text}", "Ok: {text}", "Did it. {text}", "Says: {text}"),
    Kind.DID_NOT: ("Didn't work. {text}", "Failed: {text}", "Nope: {text}"),
}  # fmt: skip
