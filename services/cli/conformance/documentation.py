"""docs/conformance.md, written by `python -m services.cli.conformance.documentation`."""

from __future__ import annotations

from services.cli.conformance.catalogue import CATALOGUE


def documentation() -> str:
    """The checks as Markdown."""
    lines = [
        "# What the conformance kit checks",
        "",
        "`windtunnel doctor --conformance URL` posts turns to an agent as the platform does and",
        "answers its tool calls from a small proxy of its own. It says of every line of the",
        "runtime contract that can be decided from outside whether the agent keeps it. A *must*",
        "that fails is a breach; a *should* is what the contract advises, or what shows only when",
        "conditions are bad. What cannot be decided, because the agent made no tool call or shows",
        "nothing of the response, is said with its reason.",
        "",
        "About twenty turns are posted one after the other, and four at once. An agent without",
        "side effects of its own changes nothing: tools are called nowhere but at the kit.",
        "",
        "| check | requirement | level | expected | how to mend it |",
        "|---|---|---|---|---|",
    ]
    for spec in CATALOGUE:
        cells = (f"`{spec.id}`", spec.requirement, spec.level, spec.expected, spec.mend)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(documentation(), end="")
