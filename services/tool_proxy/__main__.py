"""`python -m services.tool_proxy`."""

from services.runtime.service import run
from services.tool_proxy.service import ToolProxySettings, start

if __name__ == "__main__":
    run(ToolProxySettings, start)
