"""Every check of the doctor: what must be so, and how to mend it. docs/doctor.md shows this."""

from __future__ import annotations

from services.cli.doctor.model import CheckSpec

APPLICATION = (
    CheckSpec(
        "import",
        "the module of `--app module:attribute` is found from the current directory, imports "
        "without an error, in time, and has an ASGI application there",
        "Start the doctor where you start the agent, with the same variables set. Name the module "
        "with dots and without .py. Move whatever blocks, exits or serves into `main()`.",
    ),
    CheckSpec(
        "serve",
        "uvicorn can start the application, its lifespan included",
        "Look at the lines that the application printed; mend its startup.",
    ),
)
REGISTRATION = (
    CheckSpec(
        "registration",
        "the document of `--file` can be registered as it is",
        "Correct what is named; `windtunnel agents register` refuses it for the same reasons.",
    ),
)
ENDPOINT = (
    CheckSpec(
        "auth_value",
        "the agent's auth value is found where `env:NAME` or `file:PATH` says",
        "Set the variable, or write the file, where the doctor and later the dispatcher run. Its "
        "content is the whole header value, such as `Bearer ...`.",
    ),
    CheckSpec(
        "endpoint",
        "something at the endpoint answers HTTP",
        "Start the agent, correct host, port and scheme, or open the way to it.",
    ),
    CheckSpec(
        "ping",
        'the body `{"ping": true}` with the right auth is answered 2xx (for other kinds: what '
        "stands for it)",
        "Answer the ping right after the auth check, before anything else of the body is read.",
    ),
    CheckSpec(
        "ping_wrong_auth",
        "a ping with a wrong auth value is refused with 401 or 403",
        "Check auth first, then the ping. Compare the whole header value, in constant time.",
    ),
    CheckSpec(
        "ping_no_auth",
        "a ping without the auth header is refused with 401 or 403",
        "Check auth first, then the ping; without auth anybody who reaches the agent can use it.",
    ),
)
PROXY = (
    CheckSpec(
        "proxy",
        "`POST {proxy}/tools/__reachability_probe__` with a made-up token is answered 401, from "
        "here; the same has to be so where the agent runs",
        "Start the stack, or correct `--proxy`. Run the curl line on the agent's machine: 401 is "
        "success, an error of DNS or connection is a network that has to be opened.",
    ),
)
TOOLS = (
    CheckSpec(
        "tools",
        "the tools list can be registered: names match `^[A-Za-z_][A-Za-z0-9_-]{0,127}$` and are "
        "unique, every tool has an `input_schema`, schemas are valid JSON Schema",
        "Correct the entries that are named; `--fix-tools FILE` writes lists in another "
        "library's shape as Windtunnel's.",
    ),
    CheckSpec(
        "tool_schemas",
        "every tool says what it is for, and its schema lets nothing pass that it does not mean",
        "Add a description, `required`, and `additionalProperties: false`: wrong calls are then "
        "refused, and seen, instead of being answered with something made up.",
    ),
)
DATASET = (
    CheckSpec(
        "dataset",
        "the CSV of `--csv` imports as scenarios",
        "Correct the rows that are named; `windtunnel scenarios import-csv` wants the same.",
    ),
)
CONFORMANCE = (
    CheckSpec(
        "conformance",
        "with `--conformance`: the endpoint keeps to the runtime contract, one line for each check",
        "Each line says what was expected, what was seen and how to mend it.",
    ),
)
ENVIRONMENT = (
    CheckSpec(
        "python",
        "Python is 3.11 to 3.13",
        "Make the environment anew with such a Python: `make setup PYTHON=python3.11`.",
    ),
    CheckSpec(
        "disk",
        "the disk of the stack's directory has 1 GiB left",
        "Free space, or choose another `--dir`. A stack does not start with less than 200 MiB.",
    ),
    CheckSpec(
        "broker",
        "the broker answers",
        "Start the stack (`windtunnel up`), or correct `--bootstrap` or WINDTUNNEL_BOOTSTRAP.",
    ),
    CheckSpec(
        "topics",
        "every topic is there",
        "Create them: `windtunnel topics create`.",
    ),
    CheckSpec(
        "store",
        "the store answers",
        "Start the stack, or correct WINDTUNNEL_STORE.",
    ),
    CheckSpec(
        "services",
        "every service of the stack says that it is ready",
        "Wait a moment, then look into the log of the service, in the stack's directory.",
    ),
    CheckSpec(
        "bubblewrap",
        "`bwrap` can make a sandbox, which agents uploaded as code run in",
        "Install bubblewrap (`make bubblewrap`) and allow unprivileged user namespaces. Only "
        "agents of kind code need it.",
    ),
    CheckSpec(
        "kafka",
        "Java 17 and Apache Kafka's jars are there, for `windtunnel up --broker kafka`",
        "Install a Java runtime, and fetch the jars with `make kafka-jars`, which takes Maven.",
    ),
)

GROUPS = {
    "The application (`--app`)": APPLICATION,
    "The registration (`--file`)": REGISTRATION,
    "The endpoint (`--app`, `--url`, `--file`)": ENDPOINT,
    "The proxy (`--proxy`, or the running stack's)": PROXY,
    "The tools list (`--tools`, `--file`)": TOOLS,
    "The dataset (`--csv`)": DATASET,
    "The contract (`--conformance`)": CONFORMANCE,
    "This machine (no arguments)": ENVIRONMENT,
}
BY_ID = {spec.id: spec for group in GROUPS.values() for spec in group}
