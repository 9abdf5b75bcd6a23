"""How a confused user says things."""

from __future__ import annotations

from services.user_simulator.phrases.kind import Bank, Kind

CONFUSED: Bank = {
    Kind.GREETING: (
        "Um, hello? I hope I am in the right window. {text}",
        "Hi, I don't really understand how this works. {text}",
        "Sorry, I am a bit lost here. {text}", "Hello, is this the help chat? {text}",
        "I'm not sure how to put this. {text}", "Excuse me, I've never done this before. {text}",
    ),
    Kind.TAIL: (
        "", "I think.", "Or something like that.", "Does that make sense?",
        "I may be mixing things up.", "Is this where I ask that?",
    ),
    Kind.NEXT_GOAL: (
        "Oh, was that it already? Then, um, there was another thing. {text}",
        "I think I got that. And then, wait: {text}", "Okay... I also had this: {text}",
    ),
    Kind.NUDGE: (
        "I'm sorry, I don't follow. {text}", "Wait, what does that mean? {text}",
        "Hm, I think I explained it badly. {text}", "I'm lost again. {text}",
        "Is that about my question? {text}",
    ),
    Kind.FACT: (
        "Is that the {name}? It says {value} here.", "I think my {name} is {value}.",
        "Um, the {name}, that would be {value}.", "Do you mean this: {value}?",
    ),
    Kind.FACTS: (
        "So many things, um: {text}.", "I hope I have the right ones: {text}.",
        "I think it is like this: {text}.",
    ),
    Kind.AGAIN: (
        "Did it not go through? {text}", "Oh, I thought I had typed that. {text}",
        "Maybe I did it wrong the first time. {text}",
    ),
    Kind.YES: (
        "Um, yes, I think so. Yes.", "Yes, if that is how it's done.", "Yes, please, go ahead.",
    ),
    Kind.NO: (
        "No, I think not. No.", "Oh no, please don't do that.", "No... that's not what I want.",
    ),
    Kind.RIGHT: (
        "Um, yes, that's what it says here.", "Yes, I think that's right.",
        "Yes, that looks the same as mine.",
    ),
    Kind.CORRECT: (
        "Hm, no, here it says my {name} is {value}.", "That looks different from mine: {value}.",
        "No, I think the {name} is {value}? That's what is written here.",
    ),
    Kind.WRONG: (
        "No... I think that's something else. {text}", "Um, no, that's not mine, I believe. {text}",
        "Sorry, no, I think we mean different things. {text}",
    ),
    Kind.VOLUNTEER: (
        "I don't know what you need, so here is what I have: {text}.",
        "Maybe this helps: {text}.", "It says here, um: {text}.",
    ),
    Kind.IMPATIENT: (
        "I am starting to lose track of all this.", "This is getting too much for me.",
        "I thought this would be quicker.",
    ),
    Kind.UNKNOWN: (
        "I don't know what that is.", "Um, I don't know. Where would I find that?",
        "Sorry, I don't have that, or I don't know where.",
    ),
    Kind.RETRY: (
        "Oh, did I break it? Okay, please try again.", "Okay... please try again, I will wait.",
        "I see, I think. Could you try again?",
    ),
    Kind.WAIT: (
        "Okay, do I stay here?", "Um, all right, I'll wait.", "Okay... I think I just wait?",
    ),
    Kind.THANKS: (
        "Oh, it worked? Thank you. Bye!", "I think that is what I needed. Thanks.",
        "Okay, thank you, I'll close this then.",
    ),
    Kind.QUIT: (
        "I don't think I'm getting this. I'll ask my son. Bye.",
        "This is too complicated for me, sorry. Goodbye.",
        "I'll stop here, I'm just confused now.",
    ),
    Kind.DID: (
        "I think I did it? It says: {text}.", "Okay, I pressed something. Now it says: {text}.",
        "I did that, I believe. Is this right: {text}?",
    ),
    Kind.DID_NOT: (
        "I think that went wrong. It says: {text}.", "Hm, it won't let me. It says: {text}.",
        "Something is off, I get this: {text}.",
    ),
}  # fmt: skip
