"""Source of agents that run in a sandbox here: taken in, published in parts, and read again.

What is taken in is hostile until it is proven to be a plain set of small files: `read_zip`,
`read_path` and `fetch_git` refuse everything else by name, and only `Archive` leaves this package.
"""

from services.runtime.sources.archive import Archive
from services.runtime.sources.files import SourceRefused
from services.runtime.sources.intake import intake
from services.runtime.sources.publishing import publish_source
from services.runtime.sources.store import SourceStore

__all__ = ["Archive", "SourceRefused", "SourceStore", "intake", "publish_source"]
