"""The doctor: in one pass, what keeps an agent from being tested here, and how to mend it.

    findings = await diagnose(Request(url="http://127.0.0.1:8700/dispatch"), tell=print)
    sys.exit(exit_code(findings))

Nothing hangs: every step has a bound. What an agent does wrong is a finding, never an exception.
"""

from __future__ import annotations

from services.cli.doctor.context import Request
from services.cli.doctor.examination import exit_code
from services.cli.doctor.model import Finding, Outcome
from services.cli.doctor.visit import diagnose

__all__ = ["Finding", "Outcome", "Request", "diagnose", "exit_code"]
