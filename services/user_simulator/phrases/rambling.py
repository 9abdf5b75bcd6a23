"""How a rambling user says things."""

from __future__ import annotations

from services.user_simulator.phrases.kind import Bank, Kind

RAMBLING: Bank = {
    Kind.GREETING: (
        "Hello, I hope this is the right place, my neighbour told me about the chat. {text}",
        "Hi! So, it has been quite a week here and I only got round to this now. {text}",
        "Good day, I was going to call but the line was busy, so here I am. {text}",
        "Hi there, bear with me, I type slowly and the dog keeps barking. {text}",
        "Hello hello. I looked around on the website first and got a bit lost. {text}",
        "Hi, I promised my wife I would deal with this today, so here goes. {text}",
    ),
    Kind.TAIL: (
        "", "Anyway, that is the long and short of it.", "Sorry for the long message.",
        "I would have done it last week but you know how it is.",
        "My sister had something similar once and it went well.", "Take your time.",
    ),
    Kind.NEXT_GOAL: (
        "Lovely, that is a weight off my mind. While I have you, there is something else. {text}",
        "Oh good, thank you. And before I forget again: {text}",
        "That was easier than I thought! Now the other thing on my list. {text}",
    ),
    Kind.NUDGE: (
        "I may have lost you with all my talking, so here is what it is about: {text}",
        "I do go on, I know. The point was this: {text}",
        "Hm, I got up for a coffee and I think we drifted off. {text}",
        "Let me put it differently, my daughter says I never get to the point. {text}",
        "We were talking about something else I believe. {text}",
    ),
    Kind.FACT: (
        "Let me see, I wrote it down somewhere. Here: my {name} is {value}.",
        "Oh yes, one moment, glasses on. The {name} is {value}.",
        "I have it in front of me on a note, the {name}: {value}. My handwriting is awful.",
        "Right, that one. My {name} is {value}, if I read it correctly.",
    ),
    Kind.FACTS: (
        "Let me go through my papers. Right: {text}. I think that is all of them.",
        "Oh, you need quite a lot! Here we go: {text}.",
        "I have a folder for these things. So: {text}.",
    ),
    Kind.AGAIN: (
        "I think I mentioned it, but I talk so much that it gets lost. {text}",
        "Didn't I say? Well, no matter. {text}",
        "Here once more, it is no trouble at all. {text}",
    ),
    Kind.YES: (
        "Yes, please go ahead, that would be a great relief.",
        "Yes, do. I was hoping you would say that.",
        "Oh yes, please, let's get it over with.",
    ),
    Kind.NO: (
        "No, thank you, I slept on it and I would rather not.",
        "No, please don't, I would only regret it.",
        "No, let's leave that, it has been trouble enough.",
    ),
    Kind.RIGHT: (
        "Yes, that is right, word for word.", "Yes, exactly, I have the same here on my note.",
        "Yes, correct, you read it better than I do.",
    ),
    Kind.CORRECT: (
        "No, I am afraid not, I have it here in black and white: my {name} is {value}.",
        "Oh, that must be somebody else's. The {name} is {value}, I looked twice.",
        "No, no, my {name} is {value}. People get it wrong all the time, even my bank.",
    ),
    Kind.WRONG: (
        "Oh dear, no, we are at cross purposes, I must have mumbled. {text}",
        "No, that is a different thing altogether. Let me begin at the beginning. {text}",
        "No, now you have mixed me up with somebody. {text}",
    ),
    Kind.VOLUNTEER: (
        "I have all my papers spread out here, so before you ask: {text}.",
        "My daughter told me to have these at hand: {text}.",
        "I may as well tell you while I have it in front of me: {text}.",
    ),
    Kind.IMPATIENT: (
        "My tea has gone cold twice by now.",
        "I could have walked to the shop by now, and my knee is bad.",
        "I have been at this since before lunch, you know.",
    ),
    Kind.UNKNOWN: (
        "Now that I really don't know. I have never been good with such things.",
        "I don't know, and I have turned the whole drawer upside down.",
        "Sorry, I don't have that. It may have been in the old wallet.",
    ),
    Kind.RETRY: (
        "These computers! Okay, please try again, I am not going anywhere.",
        "It happens. I'll put the kettle on; please try again.",
        "My own laptop does that all the time. Please give it another try.",
    ),
    Kind.WAIT: (
        "No hurry at all, I have my crossword here.", "Of course, I'll just water the plants.",
        "Take your time, I am retired, I have all day.",
    ),
    Kind.THANKS: (
        "Wonderful, thank you so much, you have made my afternoon. Goodbye!",
        "Thank you, dear, that was painless. All the best!",
        "Great, now I can tell everyone it is done. Thanks and bye.",
    ),
    Kind.QUIT: (
        "You know what, I think I will ask somebody at the counter instead. Goodbye.",
        "My tea is cold by now, and we are where we began. I'll leave it.",
        "I give up, it is not meant to be today. Bye.",
    ),
    Kind.DID: (
        "So I found my glasses, did what you said, and now it reads: {text}.",
        "Right, that took me a while, my fingers are not what they were, but it says: {text}.",
        "There we go, I did it, first time for everything, and there it stands: {text}.",
    ),
    Kind.DID_NOT: (
        "Well, I tried it twice, my neighbour would have known, but all it says is: {text}.",
        "I did what you said, or so I think, and it will not have it: {text}.",
        "No luck, I am afraid, and I was so careful about it. It reads: {text}.",
    ),
}  # fmt: skip
