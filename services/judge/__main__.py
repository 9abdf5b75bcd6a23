"""`python -m services.judge`."""

from services.judge.service import JudgeSettings, start
from services.runtime.service import run

if __name__ == "__main__":
    run(JudgeSettings, start)
