"""`python -m services.dispatcher`"""

from services.dispatcher.service import start
from services.dispatcher.settings import DispatcherSettings
from services.runtime.service import run

if __name__ == "__main__":
    run(DispatcherSettings, start)
