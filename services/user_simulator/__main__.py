"""`python -m services.user_simulator`."""

from services.runtime.service import run
from services.user_simulator.service import UserSimulatorSettings, start

if __name__ == "__main__":
    run(UserSimulatorSettings, start)
