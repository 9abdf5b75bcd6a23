"""The phrase bank: how users of each style say the few things that users say.

`{text}` stands for the scenario's own words, `{name}` and `{value}` for a fact. The scenario's
words are kept whole, since they carry what is tested. Changing anything here changes what
sessions say: raise `schemas.pins.AGENDA` with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Kind(StrEnum):
    """What a phrase does in the conversation."""

    GREETING = "greeting"
    TAIL = "tail"
    NEXT_GOAL = "next goal"
    NUDGE = "nudge"
    FACT = "fact"
    FACTS = "facts"
    AGAIN = "again"
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    RETRY = "retry"
    WAIT = "wait"
    THANKS = "thanks"
    QUIT = "quit"


Bank = Mapping[Kind, tuple[str, ...]]

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
}  # fmt: skip

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
    Kind.UNKNOWN: ("Don't know.", "No idea.", "Don't have that.", "Not known."),
    Kind.RETRY: ("Ok, try again.", "Fine, try again.", "Ok. Retry please.", "Waiting. Try again."),
    Kind.WAIT: ("Ok.", "Waiting.", "Fine."),
    Kind.THANKS: ("Thanks.", "Thx, bye.", "Done, thanks.", "Ok, bye."),
    Kind.QUIT: ("Forget it.", "Never mind.", "I'm out. Bye."),
}  # fmt: skip

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
}  # fmt: skip

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
}  # fmt: skip

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
}  # fmt: skip

BANKS: Mapping[str, Bank] = {
    "plain": PLAIN, "terse": TERSE, "rambling": RAMBLING, "hostile": HOSTILE,
    "confused": CONFUSED,
}  # fmt: skip
