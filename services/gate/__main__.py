"""`python -m services.gate`: wiring only."""

from services.gate.service import GateSettings, start
from services.runtime.service import run

if __name__ == "__main__":
    run(GateSettings, start)
