"""`python -m services.control`."""

from services.control.service import ControlSettings, start
from services.runtime.service import run

if __name__ == "__main__":
    run(ControlSettings, start)
