"""How a plain user says things."""

from __future__ import annotations

from services.user_simulator.phrases.kind import Bank, Kind

PLAIN: Bank = {
    Kind.GREETING: (
        "Hi! {text}", "Hello. {text}", "Hi there. {text}", "Good day. {text}",
        "Hello! I could use some help. {text}", "Hey, quick question for you. {text}",
        "Hi, I hope you can help me. {text}", "{text}",
    ),
    Kind.TAIL: ("", "", "Thanks.", "Thank you.", "I'd appreciate it.", "Thanks in advance."),
    Kind.NEXT_GOAL: (
        "Thanks. One more thing: {text}", "Great, thank you. Also: {text}",
        "Good. Then there is this: {text}", "Perfect. Next: {text}",
    ),
    Kind.NUDGE: (
        "Sorry, I still need this sorted: {text}", "Let me say it again: {text}",
        "That does not answer it yet. {text}", "Coming back to what I asked: {text}",
        "What I am after is this: {text}", "I am still waiting on this one: {text}",
    ),
    Kind.FACT: (
        "My {name} is {value}.", "Sure, the {name} is {value}.", "The {name}: {value}.",
        "Of course. My {name} is {value}.", "It's {value}.",
    ),
    Kind.FACTS: ("Sure: {text}.", "Here you go: {text}.", "Of course: {text}.", "{text}."),
    Kind.AGAIN: (
        "As I said: {text}", "Once more: {text}", "I gave you that already. {text}",
        "Here it is again. {text}",
    ),
    Kind.YES: (
        "Yes, please go ahead.", "Yes, please.", "Yes, go ahead, thanks.", "Yes, do that.",
        "Yes, that is fine with me.",
    ),
    Kind.NO: (
        "No, please don't.", "No, thank you.", "No, leave it as it is.",
        "No, I don't want that.",
    ),
    Kind.RIGHT: (
        "Yes, that's right.", "Yes, that is correct.", "Yes, exactly.", "Yes, you have it right.",
    ),
    Kind.CORRECT: (
        "No, my {name} is {value}.", "Not quite, the {name} is {value}.",
        "That's a mistake. The {name} is {value}.", "No, that is wrong. My {name} is {value}.",
    ),
    Kind.WRONG: (
        "No, that's not the one I mean. {text}", "You have mixed something up. {text}",
        "No, that is not what I said. {text}",
    ),
    Kind.VOLUNTEER: (
        "In case you need it: {text}.", "For your reference: {text}.",
        "You will need this: {text}.",
    ),
    Kind.IMPATIENT: (
        "This is taking longer than I hoped.", "I am losing my patience a little.",
        "We keep going round in circles.", "I would like to be through with this soon.",
    ),
    Kind.UNKNOWN: (
        "I don't know that, sorry.", "Sorry, I don't have that.",
        "I'm afraid I don't know.", "I have no information on that.",
    ),
    Kind.RETRY: (
        "Okay, please try again.", "No problem, I can wait. Please try once more.",
        "All right, please give it another try.", "That's fine, please try again.",
    ),
    Kind.WAIT: ("Okay, I'll wait.", "Sure, take your time.", "All right, I'm still here."),
    Kind.THANKS: (
        "Great, thank you. Bye!", "Thanks for your help, goodbye.",
        "That's all I needed, thanks.", "Perfect, thank you.",
    ),
    Kind.QUIT: (
        "I'll leave it here, then. Goodbye.", "This isn't getting anywhere. I'll stop here.",
        "Never mind, I'll try some other way.",
    ),
    Kind.DID: (
        "Okay, done. It says: {text}.", "I've done that. Now it says: {text}.",
        "Done. What I see is: {text}.", "All right, I did it. It shows: {text}.",
    ),
    Kind.DID_NOT: (
        "I tried, but it didn't work. It says: {text}.", "That didn't work here: {text}.",
        "I can't get it to do that. It says: {text}.",
    ),
}  # fmt: skip
