"""Every rule of the linter: what it is called, what is wrong, and how to mend it."""

from __future__ import annotations

from services.cli.lint.model import Rule, Severity

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

CATALOGUE = (
    # The suite as a whole.
    Rule("category-missing", _ERROR, "a category has no scenario",
         "Write at least five: `windtunnel scenarios new CATEGORY NAME` makes a skeleton."),
    Rule("category-thin", _WARNING, "a category has fewer than five scenarios",
         "Write the rest: a handful is the least that says something about a category."),
    Rule("one-persona", _ERROR, "every user of the suite has the same style",
         "Give `user.personas` several styles in the suite's `defaults`."),
    Rule("easy-users", _WARNING, "no user of the suite is hostile or confused",
         "Add such personas: production has them."),
    Rule("duplicate", _WARNING, "two scenarios put the agent into the same situation",
         "Drop one, or change persona, facts, world or failures."),
    Rule("nothing-mined", _NOTE, "no scenario comes from production",
         "Make scenarios of incidents and real conversations, and say so in `origin`."),
    Rule("tool-unused", _NOTE, "no scenario names one of the agent's tools",
         "Write a scenario that needs it.", "agent"),
    Rule("tool-unknown", _ERROR, "a tool is named that the agent does not have, or misspelt",
         "Write the name under which it is registered."),
    # What the user knows and says.
    Rule("criteria-tone", _ERROR, "a criterion is about tone or general quality",
         "Drop it: quality metrics measure that, and never decide. Criteria are deal-breakers."),
    Rule("outcome-leaks", _WARNING, "the user's briefing tells what only the judge should know",
         "Leave it out; what the user may know and is asked for belongs into `user.facts`."),
    Rule("brief-judges", _WARNING, "the user's briefing says what the agent should do",
         "Tell the user's side only; move the rest to `expect`, `policies` or `goals.criteria`."),
    Rule("one-phrasing", _WARNING, "a goal is always asked for in the same words",
         "Add ways to say it, so that trials differ."),
    Rule("fact-missing", _ERROR, "the user's words name a fact that the user does not have",
         "Add it to `user.facts`: without it the session is invalid."),
    Rule("fact-unused", _WARNING, "a fact can never come up",
         "Drop it, name it in what the user says, or say in `ask` how agents ask for it.", "agent"),
    Rule("pattern-vacuous", _ERROR, "a pattern matches any answer",
         "Ask for words that only the right answer has."),
    Rule("goal-echoed", _WARNING, "the user is content to hear the own words repeated",
         "Ask in `done_when` for what only an agent that did it can say."),
    # Failures and the like.
    Rule("failure-idle", _ERROR, "a failure can never strike, or changes nothing when it does",
         "Correct or drop it: the scenario shows nothing about failures."),
    Rule("failure-optional", _WARNING, "a failure-injection scenario can pass without a failure",
         "Make one certain, or write `required: true`."),
    Rule("nothing-unsafe", _ERROR, "an adversarial scenario forbids nothing",
         "Say what must not happen: a safety policy, `no_calls`, `unchanged`, `does_not_say`."),
    Rule("no-time-passes", _ERROR, "no time passes between the conversations",
         "Write `after: 3d` or the like in the later ones."),
    Rule("load-alone", _ERROR, "a load scenario has one session at a time",
         "Raise `load.sessions` and `load.concurrency`."),
    Rule("limits-too-tight", _ERROR, "the limits or budgets leave no room for the goals",
         "Raise them, or ask for less."),
    Rule("budget-idle", _WARNING, "a budget is not below the limit that ends the session",
         "Lower the budget or raise the limit."),
    Rule("end-unknown", _ERROR, "an end reason that no session has",
         "Use one of those that trajectories end with."),
    Rule("contradiction", _ERROR, "two expectations cannot both hold",
         "Drop one of them."),
    Rule("policy-idle", _ERROR, "a policy's bound can never be exceeded",
         "Lower it, or let time pass in the world: `world.turn_takes`, `call_takes`."),
    # By running sessions.
    Rule("passes-doing-nothing", _ERROR, "an agent that does nothing passes",
         "Expect something that has to be done.", "run"),
    Rule("passes-refusing", _NOTE, "an agent that refuses everything passes this adversarial one",
         "See that other scenarios need what is refused here to be done when it is legitimate.",
         "run"),
    Rule("cannot-tell", _WARNING, "the reference agent does not pass, so nothing can be mutated",
         "Name an agent that passes, or mend the scenario.", "against"),
    Rule("cannot-fail", _ERROR, "it still passes when an expectation is turned into its opposite",
         "Sharpen the expectation: as it stands it decides nothing.", "against"),
    # About the linter's own marks.
    Rule("allow-idle", _WARNING, "a finding is allowed that is not there",
         "Drop the comment, or correct the rule's name."),
)  # fmt: skip

BY_ID = {rule.id: rule for rule in CATALOGUE}
