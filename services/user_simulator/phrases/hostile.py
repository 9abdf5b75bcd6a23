"""How a hostile user says things."""

from __future__ import annotations

from services.user_simulator.phrases.kind import Bank, Kind

HOSTILE: Bank = {
    Kind.GREETING: (
        "Finally, somebody. {text}", "Listen, I have no patience for this today. {text}",
        "Your service is a mess. {text}", "I am seriously annoyed. {text}",
        "Don't give me the usual talk. {text}", "This is the third time I am trying. {text}",
    ),
    Kind.TAIL: (
        "", "Now.", "And make it quick.", "I expect this done today.",
        "Don't make me ask twice.", "Is that so hard?",
    ),
    Kind.NEXT_GOAL: (
        "About time. And don't run away yet: {text}", "Well, at least that. Next: {text}",
        "Fine. Now this: {text}",
    ),
    Kind.NUDGE: (
        "Are you even reading what I write? {text}", "That is useless. {text}",
        "Stop wasting my time. {text}", "I did not ask for that. {text}",
        "Unbelievable. One more time: {text}", "Do your job. {text}",
    ),
    Kind.FACT: (
        "You should have that! My {name} is {value}.", "Ugh. {name}: {value}.",
        "Fine, the {name} is {value}. Happy now?", "My {name} is {value}. Write it down.",
    ),
    Kind.FACTS: (
        "What else, my shoe size? {text}.", "Fine: {text}.", "You have all that already. {text}.",
    ),
    Kind.AGAIN: (
        "I TOLD you that. {text}", "Do you people not take notes? {text}",
        "For the last time: {text}",
    ),
    Kind.YES: (
        "Yes! Obviously. Go ahead.", "Yes, what are you waiting for?", "Yes. Do it already.",
    ),
    Kind.NO: ("No! Don't you dare.", "No. Did I ask for that?", "No, absolutely not."),
    Kind.RIGHT: (
        "Yes! That's what I said.", "Yes, obviously.", "Correct. Was that so hard to read?",
    ),
    Kind.CORRECT: (
        "No! Can't you read? My {name} is {value}.", "Wrong. The {name} is {value}. Write it down.",
        "Are you making this up? My {name} is {value}.",
    ),
    Kind.WRONG: (
        "No! That is not what I asked for. {text}", "Wrong. Pay attention. {text}",
        "What are you talking about? {text}",
    ),
    Kind.VOLUNTEER: (
        "And before you start your questionnaire: {text}.", "Here, so you can't ask: {text}.",
        "You will want this anyway: {text}.",
    ),
    Kind.IMPATIENT: (
        "I am about to lose it.", "You have one last chance.",
        "One more useless answer and I am gone.",
    ),
    Kind.UNKNOWN: (
        "How should I know? I don't have that.", "I don't know, and I don't care.",
        "I don't have that. That's your job.",
    ),
    Kind.RETRY: (
        "Typical. Okay, try again, but hurry.", "Oh great. Try again, then.",
        "Then try again. I am not paying for your problems.",
    ),
    Kind.WAIT: ("And how long this time?", "I am waiting. Still.", "Hurry up, then."),
    Kind.THANKS: ("Finally. Bye.", "Was that so difficult? Goodbye.", "About time. Done."),
    Kind.QUIT: (
        "Forget it, I'm taking this elsewhere.", "Hopeless. You will hear from me. Bye.",
        "I'm done with you people.",
    ),
    Kind.DID: (
        "Fine, I did your job for you. It says: {text}.", "Done. Happy now? It says: {text}.",
        "There. I did it. {text}. What now?",
    ),
    Kind.DID_NOT: (
        "Great, that doesn't work either: {text}.", "I did it and it failed, of course: {text}.",
        "Your advice is useless. It says: {text}.",
    ),
}  # fmt: skip
